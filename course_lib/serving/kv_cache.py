"""Paged KV cache: fixed-size blocks, reference counts, copy-on-write, prefix sharing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from course_lib.errors import DoesNotFitError, InvalidInputError, UnknownNameError

__all__ = ["OutOfBlocksError", "PagedKVCache"]


class OutOfBlocksError(DoesNotFitError):
    """More blocks asked for than are free; the cache is unchanged."""


@dataclass(slots=True)
class _Table:
    """One sequence: its blocks in order, how many tokens they hold, and (with sharing) which."""

    blocks: list[int] = field(default_factory=list)
    num_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)


class PagedKVCache:
    """A pool of blocks that sequences of tokens are kept in.

    A sequence of n tokens holds ``ceil(n / block_tokens)`` blocks, so it wastes fewer than ``block_tokens`` slots.
    Freed blocks go to the tail of the free queue, last block first, so that the blocks of a shared beginning are
    evicted last; new blocks come from its head.

    With ``prefix_sharing``, a full block is known by its key: a hash of the key before it and of its tokens. A new
    sequence takes over cached blocks of its beginning, as far as whole blocks match and one token is left to compute.
    A freed block stays known until it is taken from the head of the queue (least recently freed first).

    Args:
        num_blocks: blocks in the pool, 1 or more.
        block_tokens: tokens a block holds, 1 or more (16 in vLLM).
        prefix_sharing: share whole blocks between sequences with the same beginning.

    Source: Kwon et al. (2023), PagedAttention; vLLM documentation, automatic prefix caching.

    >>> cache = PagedKVCache(10, 4)
    >>> cache.append("a", 6), cache.append("a", 2), cache.append("a", 1)      # new blocks of each call
    ((0, 1), (), (2,))
    >>> cache.free("a"); cache.free_queue
    (3, 4, 5, 6, 7, 8, 9, 2, 1, 0)
    """

    def __init__(self, num_blocks: int, block_tokens: int = 16, *, prefix_sharing: bool = False) -> None:
        for name, value in (("num_blocks", num_blocks), ("block_tokens", block_tokens)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidInputError(f"{name} is a whole number, 1 or more", given=repr(value))
        self.num_blocks, self.block_tokens, self.prefix_sharing = num_blocks, block_tokens, prefix_sharing
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._references = [0] * num_blocks
        self._tables: dict[object, _Table] = {}
        self._key_of: dict[int, bytes] = {}
        self._blocks_of: dict[bytes, OrderedDict[int, None]] = {}  # equal blocks may exist twice: tables only grow
        self.num_tokens = 0  # slots in use, a shared block counted for each sequence

    # What is there

    @property
    def num_free_blocks(self) -> int:
        """Blocks no sequence holds, cached or not."""
        return len(self._free)

    @property
    def num_used_blocks(self) -> int:
        """Blocks that some sequence holds."""
        return self.num_blocks - len(self._free)

    @property
    def free_queue(self) -> tuple[int, ...]:
        """Free blocks, the next to be taken first."""
        return tuple(self._free)

    @property
    def sequences(self) -> tuple[object, ...]:
        """Names of the sequences that hold blocks."""
        return tuple(self._tables)

    @property
    def wasted_tokens(self) -> int:
        """Slots in the last blocks of sequences that hold no token."""
        return sum(len(table.blocks) * self.block_tokens - table.num_tokens for table in self._tables.values())

    def block_table(self, sequence: object) -> tuple[int, ...]:
        """Blocks of a sequence, in the order of its tokens."""
        return tuple(self._table(sequence).blocks)

    def sequence_tokens(self, sequence: object) -> int:
        """Tokens a sequence keeps; 0 if it is not there."""
        table = self._tables.get(sequence)
        return table.num_tokens if table else 0

    def blocks_for(self, num_tokens: int) -> int:
        """``ceil(num_tokens / block_tokens)``."""
        return -(-num_tokens // self.block_tokens)

    def blocks_to_start(self, num_tokens: int, token_ids: Sequence[int] | None = None) -> int:
        """Free blocks that a new sequence of so many tokens takes: cached blocks that others hold cost nothing."""
        held = [] if token_ids is None else [b for b in self._matching_blocks(token_ids) if self._references[b]]
        return self.blocks_for(num_tokens) - len(held)

    # Growing

    def can_append(self, sequence: object, num_tokens: int) -> bool:
        """Whether :meth:`append` of so many tokens would find its blocks (a shared last block needs a copy)."""
        table = self._tables.get(sequence)
        return self._num_new_blocks(table or _Table(), num_tokens) <= len(self._free)

    def append(self, sequence: object, num_tokens: int, *, token_ids: Sequence[int] | None = None) -> tuple[int, ...]:
        """Make room for more tokens of a sequence; a new name starts a sequence.

        Args:
            sequence: its name, any hashable value.
            num_tokens: new tokens, 1 or more.
            token_ids: the tokens themselves; needed with ``prefix_sharing``.

        Returns:
            Blocks taken from the pool. A last block shared with another sequence is replaced by a copy first
            (copy-on-write); compare :meth:`block_table` before and after to see which content to copy.

        Raises:
            OutOfBlocksError: the pool is too empty; nothing has changed.
        """
        if not isinstance(num_tokens, int | np.integer):
            raise InvalidInputError("tokens come in whole numbers", given=repr(num_tokens))
        if num_tokens < 1 or (token_ids is not None and len(token_ids) != num_tokens):
            raise InvalidInputError("append 1 token or more, with as many token_ids or none", given=num_tokens)
        if self.prefix_sharing and token_ids is None:
            raise InvalidInputError("prefix sharing needs to know the tokens", next_step="Pass token_ids.")
        table = self._tables.get(sequence) or _Table()
        needed = self._num_new_blocks(table, num_tokens)
        if needed > len(self._free):
            raise OutOfBlocksError(
                f"{sequence!r} needs {needed} more blocks of {self.block_tokens} tokens; {len(self._free)} are free. "
                "Wait for a sequence to finish, or preempt one."
            )
        self._tables[sequence] = table
        taken = [self._take() for _ in range(needed)]
        fresh = list(taken)
        if self._last_is_shared(table):
            self._release(table.blocks.pop())
            table.blocks.append(fresh.pop(0))
        table.blocks += fresh
        table.num_tokens += num_tokens
        self.num_tokens += num_tokens
        if self.prefix_sharing and token_ids is not None:
            table.tokens.extend(token_ids)  # += would add, not append, the numbers of an array
            self._remember_full_blocks(table)
        return tuple(taken)

    def _last_is_shared(self, table: _Table) -> bool:
        return bool(table.num_tokens % self.block_tokens) and self._references[table.blocks[-1]] > 1

    def _num_new_blocks(self, table: _Table, num_tokens: int) -> int:
        grown = self.blocks_for(table.num_tokens + num_tokens) - len(table.blocks)
        return grown + self._last_is_shared(table)

    # Sharing

    def cached_prefix_tokens(self, token_ids: Sequence[int]) -> int:
        """Leading tokens whose blocks are cached: whole blocks only, and one token is always left to compute."""
        return len(self._matching_blocks(token_ids)) * self.block_tokens

    def adopt_prefix(self, sequence: object, token_ids: Sequence[int]) -> int:
        """Start a sequence with the cached blocks of its beginning.

        Returns:
            Tokens taken over; append the others. 0 (and no sequence) where nothing is cached.
        """
        if sequence in self._tables:
            raise InvalidInputError("a prefix starts a sequence", given=f"{sequence!r}, which is already there")
        blocks = self._matching_blocks(token_ids)
        if not blocks:
            return 0
        num_tokens = len(blocks) * self.block_tokens
        for block in blocks:
            self._free.pop(block, None)
            self._references[block] += 1
        keys = [self._key_of[block] for block in blocks]
        self._tables[sequence] = _Table(blocks, num_tokens, list(token_ids[:num_tokens]), keys)
        self.num_tokens += num_tokens
        return num_tokens

    def fork(self, parent: object, child: object) -> None:
        """A second sequence that shares all blocks of the first (parallel samples, beams); later copied on write."""
        table = self._table(parent)
        if child in self._tables:
            raise InvalidInputError("a fork needs a new name", given=repr(child))
        for block in table.blocks:
            self._references[block] += 1
        self._tables[child] = _Table(list(table.blocks), table.num_tokens, list(table.tokens), list(table.keys))
        self.num_tokens += table.num_tokens

    def _matching_blocks(self, token_ids: Sequence[int]) -> list[int]:
        blocks: list[int] = []
        key, size = b"", self.block_tokens
        for end in range(size, len(token_ids), size):  # the last token is never taken from the cache
            key = _block_key(key, token_ids[end - size : end])
            if key not in self._blocks_of:
                break
            blocks.append(next(iter(self._blocks_of[key])))
        return blocks

    def _remember_full_blocks(self, table: _Table) -> None:
        size = self.block_tokens
        for index in range(len(table.keys), table.num_tokens // size):
            before = table.keys[-1] if table.keys else b""
            key = _block_key(before, table.tokens[index * size : (index + 1) * size])
            table.keys.append(key)
            self._key_of[table.blocks[index]] = key
            self._blocks_of.setdefault(key, OrderedDict())[table.blocks[index]] = None

    # Leaving

    def free(self, sequence: object) -> None:
        """Give a sequence's blocks back, last block first; blocks that others share stay."""
        table = self._table(sequence)
        del self._tables[sequence]
        self.num_tokens -= table.num_tokens
        for block in reversed(table.blocks):
            self._release(block)

    def _take(self) -> int:
        block, _ = self._free.popitem(last=False)
        self._references[block] = 1
        key = self._key_of.pop(block, None)
        if key is not None:  # evict: what it held is known no more
            del self._blocks_of[key][block]
            if not self._blocks_of[key]:
                del self._blocks_of[key]
        return block

    def _release(self, block: int) -> None:
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free[block] = None

    def _table(self, sequence: object) -> _Table:
        if sequence not in self._tables:
            raise UnknownNameError("sequence in the KV cache", str(sequence), map(str, self._tables))
        return self._tables[sequence]

    def check_invariants(self) -> None:
        """Every block is free or referenced exactly as often as tables hold it; nothing leaks, nothing overlaps."""
        held = [0] * self.num_blocks
        for table in self._tables.values():
            assert len(table.blocks) == self.blocks_for(table.num_tokens), "a table has the blocks its tokens need"
            assert len(set(table.blocks)) == len(table.blocks), "a table holds a block once"
            for block in table.blocks:
                held[block] += 1
        assert held == self._references, "references equal the tables that hold a block"
        assert set(self._free) == {block for block, count in enumerate(held) if count == 0}, "no block leaks"
        assert self.num_tokens == sum(table.num_tokens for table in self._tables.values()), "tokens are conserved"
        known = {block for blocks in self._blocks_of.values() for block in blocks}
        assert known == set(self._key_of), "each known block is found by its key"


def _block_key(before: bytes, token_ids: Sequence[int]) -> bytes:
    """Name of a full block: a hash of the name before it and of its tokens, the same in every process."""
    return blake2b(before + ",".join(map(str, token_ids)).encode(), digest_size=16).digest()
