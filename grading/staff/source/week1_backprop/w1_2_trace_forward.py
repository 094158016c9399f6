# %% [markdown]
# # 1.2 Trace a forward pass
#
# GPT-2 has 124,439,808 parameters. One of its matrices holds 38,597,376 of them, 31 % of the model, and is
# used twice for every token. The first time it does **0** floating-point operations. The second time it does
# **77,194,752**. Same numbers, same memory. What makes the difference?
#
# The parameter count cannot tell you. A list of layers cannot either. To know what a model costs, follow the
# tensors and write down, at each operation, what is read, what is computed, what is written and what must be
# kept. In this lesson you do that by hand for 12 numbers, by machine for any module, and at the end for a
# bill.
#
# About 65 minutes: four predictions, five exercises, one slider board, one bill.

# %% role="setup"
import numpy as np

from course_lib.lesson import check, predict, reveal
from course_lib.plotting.trace import network_trace, scaling_figure, work_figure
from course_lib.tensor import Linear, Tensor, relu
from course_lib.trace import record

# %% role="shapes"
batch = 32
widths = (64, 128, 128, 10)
attention_shape = (1, 2, 128, 64)  # batch, heads, tokens, head size
model_name = "gpt2"
served_model = "llama-3-8b"
device_name = "h100-sxm"

# %% [markdown]
# ## One product, by hand
#
# `a` is 2 x 3, `b` is 3 x 2, both fp32 (4 bytes an element). Take a pencil:
#
# | output | computed as | multiplies | adds | value |
# | --- | --- | --- | --- | --- |
# | y[0, 0] | 0 + 1·7 + 2·9 + 3·11 | 3 | 3 | 58 |
# | y[0, 1] | 0 + 1·8 + 2·10 + 3·12 | 3 | 3 | 64 |
# | y[1, 0] | 0 + 4·7 + 5·9 + 6·11 | 3 | 3 | 139 |
# | y[1, 1] | 0 + 4·8 + 5·10 + 6·12 | 3 | 3 | 154 |
# | all | 4 dot products of length 3 | 12 | 12 | |
#
# So 12 multiply-adds (**MACs**) and 24 **FLOPs**. The accumulator starts at zero, so the first add counts; on
# paper you would save it, a fused multiply-add does not. Bytes: read 6 + 6 elements (48 B), write 4 (16 B),
# together **64 B**. That is the convention of this course: each operation reads each operand once and writes
# its result once.
#
# Not every operation moves bytes. `transpose` only renames memory: new shape, new strides, same bytes, 0
# moved. **Predict:** `x` holds `batch` x `widths[0]` = 32 x 64 fp32 elements, 8,192 B. How many bytes does
# `x.transpose(0, 1).reshape(-1)` move in all? Give a number and an interval you would bet on at nine to one.

# %% role="predict" id="w1-2-reshape-bytes" guess="8_192 0 10_000"
predict("w1-2-reshape-bytes", ..., low=..., high=..., unit="byte")

# %% role="reveal" id="w1-2-reshape-bytes"
a, b = Tensor([[1, 2, 3], [4, 5, 6]], dtype="fp32"), Tensor([[7, 8], [9, 10], [11, 12]], dtype="fp32")
with record() as by_hand:
    y = a @ b
print("product by hand:", y.data.tolist(), by_hand.work)
x = Tensor(np.zeros((batch, widths[0])), dtype="fp32")
with record() as moved:
    x.transpose(0, 1).reshape(-1)
reveal("w1-2-reshape-bytes", lambda: moved.bytes_moved)

# %% [markdown]
# `record()` found your 24, 12, 48 and 16. And the reshape? A flat view needs elements that are next to each
# other, and after the transpose they are not. So `reshape` copies: 8,192 B read, 8,192 B written. The same
# call on `x` itself is a view and free. Shapes alone do not tell a copy from a view; strides do.
#
# ## Three layers
#
# Now a network: `linear, relu, linear, relu, linear` with the widths of the shapes cell, 26,122 parameters,
# 32 samples. **Predict** the FLOPs of its matrix products, all samples, forward only. A wrong number costs
# nothing; a number not committed teaches nothing.

# %% role="predict" id="w1-2-forward-flops" guess="52_000 10_000 5_000_000"
predict("w1-2-forward-flops", ..., low=..., high=..., unit="FLOP")

# %% role="reveal" id="w1-2-forward-flops" points=1
rng = np.random.default_rng(0)
layers = [Linear(n, m, rng=rng) for n, m in zip(widths, widths[1:])]
x = Tensor(rng.standard_normal((batch, widths[0])), dtype="fp32")  # (B, F)
with record() as trace:
    for layer in layers[:-1]:
        x = relu(layer(x))
    x = layers[-1](x)
reveal("w1-2-forward-flops", lambda: trace.matmul_flops)

# %%
parameters = sum(n * m + m for n, m in zip(widths, widths[1:]))
claims = {
    "multiply-adds": trace.macs,
    "one sample": trace.matmul_flops // batch,
    "2 x parameters": 2 * parameters,
    "2 x batch x parameters": 2 * batch * parameters,
    "every operation, not only products": trace.flops,
    "2 x batch x weights": 2 * batch * sum(n * m for n, m in zip(widths, widths[1:])),
}
for claim, flops in claims.items():
    print(f"{claim:<35}{flops:>10,}   {flops / trace.matmul_flops:.4f} of what ran")
work_figure(trace)

# %% [markdown]
# Six people, six numbers, one network. The first reports **MACs** and calls them FLOPs: exactly half. The
# second and third believe that FLOPs do not depend on the batch: every sample does the work again. The fourth
# multiplies the biases too; they are only added. The fifth is right about another question: it adds biases
# and ReLUs, 1 % here. The last is the closed form, `2 * B * (sum of n * m)`, and it equals the counter to the
# integer. Always ask which one a table shows.
#
# Look at the solid bars. The adds and ReLUs hold 1 % of the FLOPs but 43 % of the bytes moved. Remember that
# in week 2. (The hatched bars have their turn below.)
#
# ## Exercise 1: the FLOPs of a linear layer
#
# `x @ w` with `x` of shape `(batch, inputs)` and `w` of shape `(inputs, outputs)`, no bias.

# %% role="exercise" grade_id="w1-2-linear-flops" points=2
def linear_flops(batch, inputs, outputs):
    """FLOPs of x @ w; a multiply-add counts as two."""
    ### BEGIN SOLUTION
    return 2 * batch * inputs * outputs
    ### END SOLUTION

# %% role="check"
check("w1-2-linear-flops", linear_flops)

# %% [markdown]
# ## Exercise 2: the bytes of a linear layer
#
# The first product above reads `x` (32 x 64) and the weights (64 x 128) and writes 32 x 128, all fp32: 8,192 +
# 32,768 + 16,384 = 57,344 B. The counter agrees (open the numbers under the figure).
#
# Models are often served with weights in fewer **bits** than the activations. Write the general rule: input
# and result in `activation_bits` an element, weights in `weight_bits`; each operand read once, the result
# written once. Ignore the scales that real formats store beside the weights (week 3). The cases come out in
# whole bytes.

# %% role="exercise" grade_id="w1-2-linear-bytes" points=2
def linear_bytes(batch, inputs, outputs, activation_bits, weight_bits):
    """Bytes read and written by x @ w, each tensor touched once."""
    ### BEGIN SOLUTION
    activations = batch * (inputs + outputs) * activation_bits
    weights = inputs * outputs * weight_bits
    return (activations + weights) // 8
    ### END SOLUTION

# %% role="check"
check("w1-2-linear-bytes", linear_bytes)

# %% [markdown]
# ## Exercise 3: what does the batch multiply?
#
# Train the same network with AdamW and double the batch. Some quantities double (exponent 1), some do not
# move (exponent 0). Fill in a dict with 0 or 1 for each of these keys, before you look at the next figure:
#
# - `"parameters"`: how many there are
# - `"flops"`: of all products, forward and backward
# - `"saved_bytes"`: activations that the forward pass keeps for the backward pass
# - `"weight_gradient_bytes"`: memory of the gradients of the weights
# - `"optimizer_bytes"`: memory of AdamW's state
# - `"weight_bytes_read"`: bytes of weights that the forward products read

# %% role="exercise" grade_id="w1-2-batch-exponents" points=2
batch_exponents = (
    ### BEGIN SOLUTION
    {
        "parameters": 0, "flops": 1, "saved_bytes": 1,
        "weight_gradient_bytes": 0, "optimizer_bytes": 0, "weight_bytes_read": 0,
    }
    ### END SOLUTION
)

# %% role="check"
check("w1-2-batch-exponents", batch_exponents)

# %%
# network_trace runs the lines that you saw above: linear layers with an activation between them.
batches = [1, 4, 16, 64, 256, 1024]
scaling_figure({samples: network_trace(samples, widths) for samples in batches})

# %% [markdown]
# Work and kept activations lie on one line, weights on another. Bytes moved are the sum of both kinds, so
# they have no exponent: flat while weights dominate, then straight. That bend is the reason why serving
# systems batch.
#
# ## What the forward pass must keep
#
# A backward pass needs values from the forward pass: a product needs its input to find the gradient of its
# weights, a ReLU needs to know where it was positive. They stay in memory until then. For our network at
# batch 32:
#
# | block of memory | bytes | kept by |
# | --- | --- | --- |
# | the input, 32 x 64 | 8,192 | product 1 |
# | output of ReLU 1, 32 x 128 | 16,384 | ReLU 1 *and* product 2, one block |
# | output of ReLU 2, 32 x 128 | 16,384 | ReLU 2 *and* product 3, one block |
# | together | 40,960 | |
#
# Parameters are not in it, they are there anyway (104,488 B). But this grows with the batch: from 82 samples
# on it is more than the parameters. **Predict:** put GELU in the place of both ReLUs, same shapes. How many
# bytes are kept?

# %% role="predict" id="w1-2-saved-bytes" guess="40_960 40_000 50_000"
predict("w1-2-saved-bytes", ..., low=..., high=..., unit="byte")

# %% role="reveal" id="w1-2-saved-bytes"
traces = {name: network_trace(batch, widths, activation=name) for name in ("relu", "gelu")}
for name, kept in traces.items():
    print(f"{name}: {kept.bytes_moved:,} B moved; saved bytes, added up by operation: {kept.raw_saved_bytes:,}")
reveal("w1-2-saved-bytes", lambda: traces["gelu"].saved_bytes)

# %% [markdown]
# ReLU's derivative can be read off its output, which the next product keeps anyway: one block, two owners.
# GELU falls and rises again, so its output does not tell its slope; it keeps its *input*, a second block for
# each hidden layer.
#
# So 40,960 becomes 73,728. The naive count, a hook on saved tensors, says 144,384 both times: it adds shared
# blocks twice, and the weights of layers 2 and 3 as well. It is too large, and blind to the change that
# matters. The bytes *moved* are the same, too. What moves and what stays are two different questions.
#
# ## Exercise 4: the saved bytes of a network
#
# Any widths; `activation` is `"none"`, `"relu"`, `"tanh"`, `"gelu"` or `"silu"`, after every layer but the
# last. Ask of each: can its derivative be computed from its output? (SiLU is x times sigmoid(x).) Biases are
# added by an operation that keeps nothing.

# %% role="exercise" grade_id="w1-2-saved-bytes-rule" points=3
def saved_bytes(batch, widths, element_bytes, activation):
    """Bytes kept for backward: unique blocks of memory, parameters left out, the input included."""
    ### BEGIN SOLUTION
    blocks_per_hidden_layer = 2 if activation in ("gelu", "silu") else 1
    elements = widths[0] + blocks_per_hidden_layer * sum(widths[1:-1])
    return batch * elements * element_bytes
    ### END SOLUTION

# %% role="check"
check("w1-2-saved-bytes-rule", saved_bytes)

# %%
from course_lib.widgets.trace import work_explorer

# Every move runs the network again; the figure under "Three layers" is the same view standing still.
# Look for what each activation does to the hatched bars, what fp16 halves, and from which batch on the adds
# and activations together move more bytes than the products.
work_explorer(batch=batch, widths=widths)

# %% [markdown]
# ## A second counter
#
# Attention compares T queries with S keys in each of N heads of size d, then mixes the values: two products.
# With the shape of the shapes cell, (1, 2, 128, 64), the first product has 2 x 128 x 128
# outputs, dot products of length 64; the second 2 x 128 x 64, of length 128. Both are 2 x 128 x 128 x 64
# multiply-adds: 2 products x 2,097,152 x 2 = 8,388,608 FLOPs really run.
#
# **Predict** what the counter that ships with torch (`torch.utils.flop_counter`) says about one call of
# `scaled_dot_product_attention` on a CPU.

# %% role="predict" id="w1-2-stock-count" guess="8_388_608 4_000_000 9_000_000"
predict("w1-2-stock-count", ..., low=..., high=..., unit="FLOP")

# %% role="reveal" id="w1-2-stock-count"
def stock_count():
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from course_lib.trace import trace_torch

    attention = torch.nn.functional.scaled_dot_product_attention
    module = type("Attention", (torch.nn.Module,), {"forward": lambda self, q: attention(q, q, q)})()
    q = torch.zeros(attention_shape)
    with FlopCounterMode(display=False) as counter:
        module(q)
    print(f"trace_torch: {trace_torch(module, q, backward=False).matmul_flops:,} FLOPs in products")
    return counter.get_total_flops()
reveal("w1-2-stock-count", stock_count)

# %% [markdown]
# No error, no warning: 0 (torch 2.13). On a CPU torch runs attention as one fused operation, and that counter
# has no rule for it. An operation without a rule adds nothing, which reads like "costs nothing". A sum with
# silent zeros is not a lower bound that you can trust; it is a number about the rules. `trace_torch` looks up
# a rule for what was really dispatched.
#
# ## Exercise 5: the missing rule
#
# Write it: FLOPs of the **two products** (not softmax). `num_kv_heads` keys and values are shared by groups
# of query heads. `query_tokens` T are the last of `context_tokens` S. A causal kernel could skip what a query
# may not see: query i (from 0) sees keys 0 to S - T + i. With `causal=False` count all pairs, as dense code
# runs them; with `causal=True` only the visible ones. A common shortcut is to halve the dense count. Is that
# exact?

# %% role="exercise" grade_id="w1-2-attention-flops" points=3
def attention_flops(batch, num_heads, num_kv_heads, query_tokens, context_tokens, head_size, causal):
    """FLOPs of q @ k.T and of weights @ v."""
    ### BEGIN SOLUTION
    pairs = query_tokens * context_tokens
    if causal:
        pairs -= query_tokens * (query_tokens - 1) // 2
    return 4 * batch * num_heads * pairs * head_size
    ### END SOLUTION

# %% role="check"
check("w1-2-attention-flops", attention_flops)

# %% [markdown]
# ## Back to the puzzle
#
# `trace_torch` runs any module. On torch's *meta* device tensors have shapes but no memory, so GPT-2 costs
# nothing to trace. One token, batch 1:

# %%
import torch

from course_lib.serving.model_shape import model_shape
from course_lib.serving.reference_decoder import reference_decoder
from course_lib.trace import Arithmetic, Table, Trace, trace_torch

model = reference_decoder(model_shape(model_name))
token = torch.zeros(1, 1, dtype=torch.int64, device="meta")
model_trace = trace_torch(model, token, backward=False)
for part, work in model_trace.by_module(depth=1).items():
    print(f"{part or model_name:<12}{work.matmul_flops:>14,} FLOPs in products {work.bytes_moved:>13,} B moved")
matrices = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, torch.nn.Linear))
attention, later = (model_shape(model_name).attention_flops(1, context) for context in (1, 1024))
print(f"{sum(p.numel() for p in model.parameters()):,} parameters; closed form {2 * matrices + attention:,}")
print(f"attention alone: {attention:,} FLOPs with 1 token to look at, {later:,} with 1,024")

# %% [markdown]
# `embedding` and `head` are one matrix. At the entrance a token *looks up* one row of it: a copy, 0 FLOPs. At
# the exit the token *multiplies* all of it: 2 x 50,257 x 768 = 77,194,752 FLOPs, 31.2 % of the pass. Work is
# not in a tensor; it is in what you do with it.
#
# The rule of thumb "2 FLOPs a parameter" says 248,879,616, the counter 247,100,928, 0.7 % less: positions,
# biases and norms do not multiply, and attention (36,864 at one token) has no parameter in it. The closed
# form, 2 FLOPs for each weight of a product plus attention, equals the counter. The rule of thumb fails where
# attention grows: with 1,024 tokens to look at it is 37,748,736 FLOPs a token, 15 % on top.
#
# ## Bring your own module
#
# Put your module and an example input into the next cell. `uncounted` names operations without a rule; the
# totals then say *incomplete*. You may bring a rule; here one for the forward pass, so the backward pass
# stays on the list. The trace goes to a JSON file, the form in which later weeks take it up, and the diff of
# two traces says what changed.

# %%
from course_lib.lesson.progress import progress_path

my_module = torch.nn.Sequential(  # any nn.Module: replace these three lines and the input
    torch.nn.Linear(widths[0], widths[1]), torch.nn.Softshrink(), torch.nn.Linear(widths[1], widths[-1])
)
my_input = torch.zeros(batch, widths[0])
before = trace_torch(my_module, my_input)
rules = {"softshrink": lambda op: Arithmetic(2 * op.outputs[0].num_elements)}
after = trace_torch(my_module, my_input, rules=rules)
print("no rule for:", before.uncounted, "then for:", after.uncounted)
path = progress_path().parent / "traces" / "w1_2.json"
path.parent.mkdir(parents=True, exist_ok=True)
after.to_json(path)
print("read back equal:", Trace.from_json(path) == after)
after.diff(before)

# %% [markdown]
# ## What this does to the bill
#
# FLOPs over what a device computes in a second, and bytes over what it moves, give seconds; seconds times a
# rental price give dollars. Take Llama-3-8B in bf16 on one H100; a step makes one token for each sequence of
# the batch and must read every weight of a product once.
#
# This is a **lower bound**, the speed of light: peak rates, every hour busy, no context, no activations
# moved. At this price, on this device, in this format, nothing real is cheaper. It is no estimate of a bill.
# In brackets the same bound at the lowest and the highest price on record for this device, spot included.
#
# Guess before you run: what does the batch do to the dollars for a million tokens?

# %%
from course_lib.cost import price, prices
from course_lib.hardware import device

served, chip = reference_decoder(model_shape(served_model)), device(device_name)
weight_bytes = sum(2 * part.weight.numel() for part in served.modules() if isinstance(part, torch.nn.Linear))
rates = [price(device_name).usd_per_hour, *sorted(t.usd_per_hour for t in prices() if t.device == device_name)]
rows = []
for size in (1, 16, 256, 1024):
    step = trace_torch(served, torch.zeros(size, 1, dtype=torch.int64, device="meta"), backward=False)
    seconds = (step.matmul_flops / chip.peak("bf16"), weight_bytes / chip.memory_bytes_per_second)
    usd = [10**6 / size * max(seconds) / 3600 * rate for rate in rates]
    cells = [f"{10**6 / size * time:,.1f}" for time in seconds]
    rows.append((size, step.matmul_flops // size, *cells, f"{usd[0]:.4f} ({usd[1]:.4f} to {usd[-1]:.4f})"))
Table(header=("batch", "FLOPs a token", "arithmetic [s]", "weights [s]", "at least [USD]"), rows=tuple(rows))

# %% [markdown]
# ## Close
#
# Seconds and dollars are for a million tokens. The FLOPs a token never change, yet the bound falls 295-fold:
# at batch 1 they wait 4,480 s for weights against 15.2 s of arithmetic, and one read serves the whole
# batch. Past batch 295 arithmetic binds and the bound stands still. Real bills are higher: efficiency,
# context and idle hours come in weeks 2 to 4, where `Journey` takes a trace to the invoice.
#
# **Discuss:** a vendor says that a new model "needs 30 % fewer FLOPs a token". Which two numbers would you
# ask for before you believe that it is 30 % cheaper?
#
# - Work is counted per use, memory per element: the same matrix costs 0 FLOPs as a table and 31 % of GPT-2 as
# a head.
# - The batch multiplies FLOPs and kept activations, not weights; bytes moved lie between.
# - A count is only as good as its rules: ask MACs or FLOPs, which operations, which causal convention, and
# what is *uncounted*.
#
# Sources: Radford and others, *Language Models are Unsupervised Multitask Learners*, 2019 (GPT-2); Kaplan and
# others, arXiv 2001.08361, 2020, section 2.1 (2 FLOPs a parameter outside the embeddings, plus attention); Ainslie and others, *GQA*, arXiv
# 2305.13245, 2023; Hendrycks and Gimpel, *Gaussian Error Linear Units (GELUs)*, arXiv 1606.08415, 2016. Prices, devices and shapes carry
# their own citations: `price("h100-sxm").citation`, `device("h100-sxm").citations`.
