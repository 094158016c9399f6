# %% [markdown]
# # 4.2 Continuous batching
#
# A server computes 32 answers at a time. The queue is never empty, so no row of the batch ever waits for work.
# Answers are 200 tokens long on average, and their lengths vary as coin tosses do. Of all the rows it computes,
# **75.31 %** belong to answers that have already ended.
#
# Change one rule in its scheduler, and nothing in the model or the machine. Then send both servers the same 2,000
# requests, four a second. Each delivers 3.9 a second. Each gives a token every 7 ms. But the median user of the first
# waits **3.87 s** for the first word, and of the second **0.031 s**. What was the rule, and how can a server be no
# faster at anything and 127 times as quick?
#
# Four words for what a user sees. **TTFT**: time to first token, from sending the request. **ITL**: one gap between
# two tokens. **TPOT**: the mean gap of one answer. **Goodput**: requests per second that kept every promise.

# %% role="setup"
from dataclasses import replace

import numpy as np

from course_lib.cost import bill, price, prices
from course_lib.hardware import device
from course_lib.lesson import check, predict, reveal
from course_lib.plotting.batching import Engine, chunk_dial_figure, goodput_figure, ttft_figure
from course_lib.plotting.timetable import timetable, timetable_figure
from course_lib.serving import (
    SLO, AffineStepTime, Geometric, PagedKVCache, RequestTrace, RooflineStepTime, Workload, chunked_prefill,
    continuous_batching, harmonic_number, model_shape, simulate, static_batching, static_slot_utilization,
)
from course_lib.serving.capacity import free_bytes
from course_lib.widgets.batching import load_dial

# %% role="shapes"
hand_requests = ((0, 2), (0, 6), (1, 3), (2, 2))  # arrives at [s], answer [tokens]: four to follow with a pencil
hand_slots = 2
model = "llama-3-8b"
chip = "h100-sxm"
slots = 32  # rows of the batch
prompt_tokens = 1024
mean_output_tokens = 200
num_requests = 2000
rate = 4  # requests/s
chunk = 256  # tokens an iteration
block_tokens = 16  # tokens of a KV block
longest = 1120  # tokens of the longest sequence
reserved = 2048  # tokens set aside for each before there were blocks
promises = (0.5, 0.02, 0.95)  # TTFT [s], TPOT [s], share of requests that must keep both
fleet_rate = 60  # requests/s of all users together

# %% [markdown]
# ## Four requests and a pencil
#
# Two rows, one token for each row in each iteration, one iteration a second. The iteration that reads a prompt also
# gives the first token. Requests are taken in their order.
#
# | request | arrives at | answer [tokens] |
# | --- | --- | --- |
# | A | 0 | 2 |
# | B | 0 | 6 |
# | C | 1 | 3 |
# | D | 2 | 2 |
#
# **Static batching** takes up to two requests, computes both rows until the *longer* one has ended, then takes the
# next two. Draw its timetable: two lines of boxes, one box a second, a letter in each box. Put a dash where a row is
# computed for an answer that has ended. How many dashes?

# %% role="predict" id="w4-2-hand-dashes" guess="4 1 9"
predict("w4-2-hand-dashes", ..., low=..., high=..., unit="rows thrown away")

# %% role="reveal" id="w4-2-hand-dashes"
two = static_batching(hand_slots), continuous_batching(hand_slots)
by_hand = [timetable(*zip(*hand_requests), policy) for policy in two]
reveal("w4-2-hand-dashes", lambda: by_hand[0].num_wasted)

# %%
arrival, answer = np.array(hand_requests).T
trace = RequestTrace(arrival.astype(float), np.ones_like(answer), answer, np.zeros_like(answer))
for policy in two:
    log = simulate(trace, step_time=AffineStepTime(fixed_seconds=1.0), policy=policy,
                   kv_cache=PagedKVCache(99), rng=np.random.default_rng(0))
    instants = (f"{'ABCDEFGH'[who.request_id]} {who.first_token_at_seconds:g}, {who.finish_at_seconds:g}"
                for who in log.requests)
    print(f"{policy.name:<14} first and last token, by the simulator:", "; ".join(instants))
timetable_figure(by_hand)

# %% [markdown]
# Compare your timetable with the upper one, and both with the instants that the simulator logged: a first token comes
# at the right edge of a letter's first box, the last token at the edge of its last. In the lower one
# a row is given away in the iteration after its answer has ended. That is the whole rule: **decide who runs anew in
# each iteration**, not in each batch (Yu and others, 2022, call it iteration-level scheduling).
#
# Read three things. B takes 6 s in both: nobody computes faster. D has its first token after 4 s instead of 5, C after
# 2 instead of 6: the gain is *waiting*. And 13 tokens fill 13 of 18 computed boxes above, 13 of 13 below.
#
# ### Exercises 1 and 2: both timetables for any lengths
#
# All requests wait at the start and are served in their order. First the static batches: the last one may be smaller,
# and then has fewer rows. Count the **rows** computed, useful or not.
#
# Then the other rule: a slot whose answer has ended computes the next request in the following iteration. How many
# **iterations** until the last token? Lengths are not known before an answer ends.

# %% role="exercise" grade_id="w4-2-static-slot-steps" points=2
def static_slot_steps(lengths, batch):
    """Rows computed, summed over iterations, for answers of these lengths in batches of up to ``batch``."""
    ### BEGIN SOLUTION
    batches = [lengths[start : start + batch] for start in range(0, len(lengths), batch)]
    return sum(len(together) * max(together) for together in batches)
    ### END SOLUTION

# %% role="check"
check("w4-2-static-slot-steps", static_slot_steps)

# %% role="exercise" grade_id="w4-2-continuous-steps" points=2
def continuous_steps(lengths, slots):
    """Iterations until every answer has ended; all requests wait at the start, first come, first served."""
    ### BEGIN SOLUTION
    free_at = [0] * slots
    for length in lengths:
        earliest = free_at.index(min(free_at))
        free_at[earliest] += length
    return max(free_at)
    ### END SOLUTION

# %% role="check"
check("w4-2-continuous-steps", continuous_steps)

# %% [markdown]
# ## From four requests to thousands
#
# Now answers whose length nobody knows: after each token the answer ends with probability $p = 1/200$ (a geometric
# length). The queue is always full. A static batch of 32 uses 24.69 % of its rows, says the puzzle. Take a quarter of
# the rows: a batch of **8**. Which share of the rows it computes is useful?

# %% role="predict" id="w4-2-useful-rows" guess="0.5 0.2 0.8"
predict("w4-2-useful-rows", ..., low=..., high=..., unit="share of rows")

# %% role="measure"
lengths, full_queue = Geometric(mean_output_tokens), {}
for batch in (2, slots // 4, slots):  # a thousand batches each, one second an iteration
    law = Workload(arrival_requests_per_second=1, prompt_tokens=1, output_tokens=lengths, num_requests=1000 * batch)
    unit = Engine(workload=law, step_time=AffineStepTime(fixed_seconds=1.0), num_blocks=100_000)
    full_queue[batch] = unit.run(static_batching(batch))
# And one replica of the real thing, for all that follows: the model, the chip, the KV blocks that fit beside it.
shape, machine = model_shape(model), device(chip)
step_time = RooflineStepTime(shape=shape, device=machine)
free = free_bytes(memory_bytes=machine.memory_bytes, weight_bytes=shape.weight_bytes("bf16"))
traffic = Workload(arrival_requests_per_second=rate, prompt_tokens=prompt_tokens, output_tokens=lengths,
                   num_requests=num_requests)
engine = Engine(workload=traffic, step_time=step_time, block_tokens=block_tokens,
                num_blocks=int(free // (block_tokens * shape.kv_bytes_per_token("bf16"))),
                slo=SLO(ttft_seconds=promises[0], tpot_seconds=promises[1], attainment=promises[2]))
policies = static_batching(slots), continuous_batching(slots), chunked_prefill(chunk, slots)

# %% role="reveal" id="w4-2-useful-rows"
reveal("w4-2-useful-rows", lambda: full_queue[slots // 4].slot_utilization)

# %%
print("   B    counted   on these lengths   exact for the law    1/H_B   standard error")
for batch, report in full_queue.items():
    drawn = report.requests_trace.output_tokens.reshape(-1, batch)  # (batches, B)
    longest_of_each = drawn.max(axis=1)
    on_lengths = drawn.sum() / (batch * longest_of_each.sum())
    residual = drawn.sum(axis=1) - on_lengths * batch * longest_of_each
    error = residual.std() * np.sqrt(len(drawn)) / (batch * longest_of_each.sum())  # of a ratio of two means
    exact, limit = static_slot_utilization(mean_output_tokens, batch), 1 / harmonic_number(batch)
    print(f"{batch:4} {report.slot_utilization:10.6f} {on_lengths:18.6f} {exact:19.4f} {limit:8.4f} {error:16.4f}")

# %% [markdown]
# A batch lasts as long as its longest answer, so the share is one mean over one expected maximum. All of $B$ answers
# have ended by token $k$ with probability $(1-(1-p)^k)^B$. Hence
#
# $$ u = \frac{1/p}{\mathrm{E}[\max]}, \qquad \mathrm{E}[\max] = \sum_{k \ge 0} 1 - \bigl(1-(1-p)^k\bigr)^B
# \;\longrightarrow\; \frac{H_B}{p}, \qquad H_B = 1 + \tfrac12 + \dots + \tfrac1B . $$
#
# The limit, for long answers, has a picture. Of $B$ memoryless answers the first ends after $1/(pB)$ tokens, the next
# after $1/(p(B-1))$ more, the last one alone takes $1/p$. So $u \to 1/H_B$, and $H_B$ grows like a logarithm:
# doubling the batch costs a little, never nothing.
#
# The first two columns of the table are equal to the last digit: on given lengths it is arithmetic. The third is
# the law that the lengths were drawn from; the count lies within a standard error or two of it. The limit is close for
# long answers; for answers of 20 tokens at 32 rows it says 0.2464 where 0.2512 is right.
#
# What the law leaves out: if all answers were equally long, static batching would waste nothing. **The waste is made
# of variance, not of batching.** Real lengths vary more than coin tosses or less; count yours.
#
# ## Rows are not seconds
#
# A continuous scheduler keeps every row useful, so it delivers $1/0.2469 = 4.05$ times as much. That is a
# theorem about rows. Now a machine: Llama-3 8B on an H100, each iteration timed by its roofline (week 2), prompts of
# 1,024 tokens, every request there at the start. How many times the requests per second?

# %% role="predict" id="w4-2-gain" guess="4.05 3.5 4.5"
predict("w4-2-gain", ..., low=..., high=..., unit="times the requests/s")

# %% role="reveal" id="w4-2-gain" points=1
def saturated_requests_per_second(policy):
    return engine.run(policy).requests_per_second  # no rate: every request is there at the start


reveal("w4-2-gain", lambda: saturated_requests_per_second(policies[1]) / saturated_requests_per_second(policies[0]))

# %% [markdown]
# The trap was to read rows as seconds. The iterations fall as promised, 4.13 times. But each takes 1.50 times as long,
# and $4.13 / 1.50 = 2.75$. A row computed for a dead answer is cheap in this model of a step: it reads no KV cache,
# and the weights are read once for the batch anyway. A living row reads its context, and brings a prompt that must be
# computed. (The next cell prints the counts. Its third policy gets back to 3.5 times; hold on to that.)
#
# ## The puzzle: four requests a second
#
# Below its limit a server delivers what arrives, by any rule; throughput cannot tell two such servers apart. So look
# at waiting, from an easy load to one that nobody can carry.

# %%
rates = tuple(rate * quarter / 4 for quarter in (1, 2, 4, 6, 8, 10, 12, 13, 14, 15, 16, 18, 20))
curves = [engine.curve(policy, rates) for policy in policies]
for curve in curves:
    full, easy = engine.run(curve.policy), curve.reports[rates.index(rate)]
    milliseconds = 1e3 * full.log.busy_seconds / full.log.num_iterations
    print(f"{full.policy}\n  full queue: {full.log.num_iterations:,} iterations of {milliseconds:.2f} ms, "
          f"{full.slot_utilization:.3f} of the rows useful, {full.requests_per_second:.2f} requests/s")
    print(f"  at {rate}/s: {easy.requests_per_second:.2f} requests/s, TTFT {easy.ttft_quantile_seconds(.5):.4f} s, "
          f"TPOT {1e3 * easy.tpot_quantile_seconds(.5):.2f} ms (medians)")
ttft_figure(curves)

# %% [markdown]
# There is the puzzle: 3.9 a second in all three, TPOT about 7 ms in all three, and a median wait of 3.8707 s, 0.0305 s
# and 0.0395 s. Continuous batching made nobody's tokens come faster; its TPOT is even a little longer. It took away the
# wait for strangers' longest answers, and moved the **knee**, the load at which the queue starts to grow, from 5 to
# 13.6 a second. Past a knee there is no such thing as the wait, only the length of the trace:
# 2,000 requests at 16 a second wait 9 s, 4,000 of them 14 s.
#
# ## A newcomer stalls everyone
#
# Look inside an iteration. When a request joins, its whole prompt of 1,024 tokens is computed in the same iteration
# as everyone's next token, and all of them wait for it. At four requests a second the *mean* gap is 7 ms. Take each
# request's **longest** gap, and of those the 99th percentile. How long is it?

# %% role="predict" id="w4-2-stall" guess="0.014 0.007 0.05"
predict("w4-2-stall", ..., low=..., high=..., unit="s")

# %% role="reveal" id="w4-2-stall"
reveal("w4-2-stall", lambda: curves[1].reports[rates.index(rate)].itl_max_quantile_seconds(0.99))

# %% [markdown]
# Twice a whole prompt: two newcomers in one iteration. **Chunked prefill** (Agrawal and others, 2024) puts a budget on
# the tokens of an iteration: decodes first, then as much of a prompt as fits. How large should the budget be? Week 2
# knows. Reading the weights takes the same time for any batch; arithmetic hides behind it up to the ridge point, here
# $295.2 \times 0.6/0.8 = 221$ tokens at the efficiencies that this step time assumes. A chunk below that is free; a
# chunk far below leaves the multipliers idle; a chunk above is paid in everyone's gap.

# %%
ridge = machine.peak("bf16") / machine.memory_bytes_per_second  # FLOP per byte
hides = ridge * step_time.efficiency_compute / step_time.efficiency_bandwidth
budgets = sorted({slots * factor for factor in (1, 2, 3, 4, 8, 12, 16, 32, 64)} | {int(hides)})
chunk_dial_figure(engine, budgets, slots=slots, hides=hides)

# %% [markdown]
# Up to the ridge a larger budget buys throughput for almost no gap; beyond it both get worse. So these are not two
# ends of one trade: only filled points deserve a choice. What chunking does cost is the first token, 9 ms later
# above, because a prompt is spread over several iterations. The model is kind here: a perfect roofline
# hides a chunk completely, a real kernel most of it. Expect the same shape and a flatter top.
#
# ## Blocks, not only slots
#
# A free slot is not enough. A request also needs KV memory, and its need grows while it runs. vLLM's answer is blocks
# of 16 tokens, taken when the sequence reaches them (Kwon and others, 2023). Count what is empty, on the allocator:

# %%
def empty_share(kept, block):
    """Put sequences into the real allocator and count its empty places."""
    pool = PagedKVCache(sum(-(-length // block) for length in kept), block)
    for name, length in enumerate(kept):
        pool.append(name, length)
    return pool.wasted_tokens / (pool.num_used_blocks * block)

every_length, half = range(1, longest + 1), longest // 2 // block_tokens * block_tokens
mean = sum(every_length) / len(every_length)
print(f"each length from 1 to {longest:,} once, {reserved:,} reserved at once: {1 - mean / reserved:.3%} empty")
for block in (block_tokens, 4 * block_tokens):
    print(f"the same in blocks of {block}: {empty_share(every_length, block):.3%} empty")
for length in (half, half + 1):
    share = empty_share([length] * 9, block_tokens)
    print(f"nine sequences of {length}, blocks of {block_tokens}: {share:.3%} empty")

# %% [markdown]
# If every remainder is equally likely, the last block is half empty less half a token: $(b-1)/2$ slots of
# $\bar n + (b-1)/2$ at a mean length $\bar n$, here 7.5 of 568, which is 1.320 %, and the count agrees exactly.
# Reserving 2,048 tokens at once leaves 72.6 % empty. The last line shows where the formula ends: lengths that are
# multiples of the block waste nothing, and one token more wastes the most. (Kwon and others, figure 2: in the best
# system without paging 38.2 % of the KV memory held tokens, with paging 96.3 %.)
#
# ### Exercises 3 and 4: the waste of given sequences, and the scheduler's decision
#
# First the share of the allocated KV slots that is empty, for given lengths.
#
# Then the scheduler. Between two iterations some slots and blocks are free, and requests wait in the order of arrival.
# **Who starts?** `waiting` holds `(prompt, max_output)` pairs, the head of the queue first. Return the positions that
# start now. Three rules:
#
# 1. Nobody may ever find the pool empty. So set blocks aside for a request's whole life. The last output token is
#    never fed back, so it leaves no key and no value.
# 2. First come, first served: nobody overtakes. That is also what keeps a large request from starving.
# 3. Nothing that can start waits. (vLLM starts a request with room for less, and preempts when it was too bold.)
#
# `free_blocks` has the promises to running requests already taken off. Your function is put into the simulator and
# serves traces on the real allocator; order, first tokens and broken laws are compared.

# %% role="exercise" grade_id="w4-2-paging-waste" points=2
def kv_waste(lengths, block_tokens):
    """Share of the allocated KV slots that hold no token; each sequence has blocks of its own."""
    ### BEGIN SOLUTION
    allocated = sum(-(-length // block_tokens) * block_tokens for length in lengths)
    return (allocated - sum(lengths)) / allocated
    ### END SOLUTION

# %% role="check"
check("w4-2-paging-waste", kv_waste)

# %% role="exercise" grade_id="w4-2-admit" points=4
def admit(waiting, free_slots, free_blocks, block_tokens):
    """Positions in ``waiting`` of the requests that start in this iteration, in order."""
    ### BEGIN SOLUTION
    starting = []
    for position, (prompt, max_output) in enumerate(waiting):
        free_blocks -= -(-(prompt + max_output - 1) // block_tokens)
        if free_blocks < 0 or len(starting) == free_slots:
            break
        starting.append(position)
    return starting
    ### END SOLUTION

# %% role="check"
check("w4-2-admit", admit)

# %% [markdown]
# ## Goodput, and the bill
#
# At 16 requests a second the continuous engine delivers 13.4 a second, near its best. Its dashboard is green, its
# users wait 9 s, and 1.4 requests a second are good.
#
# ### Exercise 5: goodput
#
# Each row of `requests` has attributes (`row.arrival`): `arrival`, `admitted`, `first_token`, `finish`,
# `output_tokens` and `longest_gap`, times in seconds on one clock. A request is good if its TTFT, as its user sees it,
# and its TPOT are at most what was promised. The run lasts from the first arrival to the last token. Not every column
# is needed.
#
# The cell after the exercise sizes a fleet for 60 requests a second: by the highest rate at which 95 % of a replica's
# requests are good, on three draws of the traffic, with one spare replica. Counts are exact for a draw; the band is
# what the draws differ by; the price is the catalogue's, and what others ask is printed below it. One line will look
# absurd: to keep a wait of half a second, a static server must stand nearly idle, because whoever meets a batch under
# way waits for its longest answer.
#
# The last cell is yours to turn: load, policy, chunk. Each move simulates a run and marks it. Without a running
# kernel, the figure of waiting above and that of goodput below are the same pictures, standing still.

# %% role="exercise" grade_id="w4-2-goodput" points=3
def goodput(requests, ttft_promise, tpot_promise):
    """Good requests per second of the run."""
    ### BEGIN SOLUTION
    good = 0
    for row in requests:
        gaps = row.output_tokens - 1
        first_kept = row.first_token - row.arrival <= ttft_promise
        pace_kept = gaps == 0 or (row.finish - row.first_token) / gaps <= tpot_promise
        good += first_kept and pace_kept
    return good / (max(row.finish for row in requests) - min(row.arrival for row in requests))
    ### END SOLUTION

# %% role="check"
check("w4-2-goodput", goodput)

# %%
tariff = price(chip)
market = [offer.usd_per_hour for offer in prices() if offer.device == chip and offer.pricing == "on-demand"]
print(f"{tariff.provider}, ${tariff.usd_per_hour:.2f} an hour, {tariff.date}; highest rates searched to 3 %")
for policy in policies:
    draws = sorted(replace(engine, seed=seed).highest_rate(policy, digits=1.5) for seed in range(3))
    bills = [bill(tariff=tariff, num_replicas=fleet_rate / kept) for kept in (draws[-1], draws[0])]
    dollars = " to ".join(dict.fromkeys(f"${found.billed_usd_per_month:,.0f}" for found in bills))
    replicas = " to ".join(dict.fromkeys(f"{found.num_replicas_billed:,}" for found in bills))
    print(f"{policy.name:<16} {draws[0]:6.3g} to {draws[-1]:6.3g} /s each, {replicas:>14} replicas,",
          f"{dollars} a month")
print(f"on-demand offers of this chip: ${min(market):.2f} to ${max(market):.2f} an hour")
goodput_figure(curves)

# %%
load_dial(engine, curves, slots=slots, rate=3.0 * rate, chunk=chunk)

# %% [markdown]
# ## Close
#
# **Discuss.** A colleague shows that static batching reached 96 % useful rows on your traffic, so the new scheduler
# would gain 4 %. Which two things would you ask to see before you agree?
#
# - The waste of static batching is one mean over one expected maximum: $1/H_B$ of the rows are useful for long
#   memoryless answers, all of them for equal ones. Rows are not seconds: the machine turned 4.05 into 2.75.
# - At a load that both can carry, a scheduler changes no throughput and no pace. It changes the wait, and where the
#   knee lies; so buy by goodput under a promise.
# - A token budget at the ridge point hides prompts behind the reading of weights: more throughput *and* shorter gaps,
#   paid with a slightly later first token.
#
# Sources: Yu and others, *Orca*, OSDI 2022 (iteration-level scheduling). Kwon and others, *PagedAttention*, SOSP 2023,
# figure 2 (blocks, waste). Agrawal and others, *Sarathi-Serve*, OSDI 2024 (chunked prefill). Zhong and others,
# *DistServe*, OSDI 2024 (goodput: the highest rate that keeps the promises, as in the table of the fleet). The prices
# carry their sources.
