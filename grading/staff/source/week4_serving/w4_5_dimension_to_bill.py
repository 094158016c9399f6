# %% [markdown]
# # 4.5 From a matrix dimension to the monthly bill
#
# Two engineers each add exactly 805,306,368 parameters to Llama-3-8B, ten percent of the model. One widens the
# feed-forward matrices from 14,336 columns to 16,384: the invoice stays at **\$17,228.00** and does not move by a
# cent. The other changes a single number of the configuration from 8 to 32: the invoice becomes **\$36,609.50**.
# The same parameters. Where did \$19,381.50 a month come from?
#
# Everything that you have traced so far is a link of one chain:
#
# > shape → parameters, FLOPs and KV bytes of a token → what fits in memory → time of a step → batch →
# > requests per second → replicas → dollars
#
# In this lesson you walk it end to end, by hand once and then by machine, and learn which link to look at first.
# You will leave with a page that prices a change of any matrix while you drag a slider.

# %% role="setup"
import math

from IPython.display import display

from course_lib.journey import Journey
from course_lib.lesson import check, predict, reveal
from course_lib.plotting.journey import change_bands, what_moved_it
from course_lib.plotting.journey_staircase import along, next_step, staircase, sweep_values
from course_lib.plotting.journey_strip import link_strip
from course_lib.serving import capacity
from course_lib.widgets.journey import bill_explorer

# %% role="shapes"
model = "llama-3-8b"
device = "h100-sxm"
requests_per_second = 60.0
prompt_tokens = 1500
output_tokens = 300
promise_ms = 50
kv_heads = 32
extra_columns = 2048
promises_ms = (50, 20, 12, 10, 8)
short_promise_ms = 10

# %% [markdown]
# ## Predict: two edits
#
# The model serves 60 requests a second, 1,500 tokens in and 300 out, with 50 ms or less promised between tokens.
# An invoice counts whole replicas, so it hides small changes. Predict the **continuous** dollars, as if a fraction of
# a replica could be rented: by how many percent does each edit move them? First the 2,048 extra columns; in the
# second cell the key/value heads, 8 to 32, which add the same ten percent of parameters.

# %% role="predict" id="w4-5-wide-layer" guess="10 3 20"
predict("w4-5-wide-layer", ..., low=..., high=..., unit="% of continuous dollars")

# %% role="predict" id="w4-5-kv-heads" guess="40 10 120"
predict("w4-5-kv-heads", ..., low=..., high=..., unit="% of continuous dollars")

# %% [markdown]
# ## One request, by hand
#
# A tiny machine: 80 units of memory, and it can read 80 units in a second. The weights take 20, each running request
# keeps a cache of 5, and wants 10 tokens. For every token the machine reads the weights once and every cache once.
#
# - Room: (80 − 20) / 5 = **12** requests at a time.
# - One step reads 20 + 12 · 5 = 80 units: **1 s**, and gives 12 tokens, one to each.
# - A request needs 10 steps, so 12 / 10 = **1.2** requests finish in a second.
# - 5.5 requests arrive in a second: 5.5 / 1.2 = 4.58, so **5** machines.
#
# Now add 10 % to the weights, and, separately, make each cache four times as large. Do it with a pencil before you run
# the cell: room, step, requests per second, machines.

# %%
for name, weights, cache in (("as it is", 20, 5), ("weights + 10 %", 22, 5), ("cache x 4", 20, 20)):
    room = capacity.memory_batch(80 - weights, cache)
    seconds = (weights + room * cache) / 80
    served = room / (10 * seconds)
    print(f"{name:<15} room {room:>2.0f}   step {seconds:.4f} s   {served:.3f} requests/s   "
          f"{5.5 / served:5.2f} -> {math.ceil(5.5 / served):>2} machines")

# %% [markdown]
# Look at the step: it takes **the same second** with the large cache, because the memory is as full as before. The
# machine is not slower. It carries 3 passengers where it carried 12.
#
# The real chain has three more parts: arithmetic, which overlaps with reading weights; prefill, which takes turns with
# decoding; and a promise, which may stop the batch before memory does. With batch $B$, context $c$ and output $o$:
#
# $$t(B) = \max\Big(\frac{2 P_{mm} B}{F}, \frac{2 P_{mm}}{W}\Big) + \frac{B\,c\,\kappa}{W} + t_0
# + \frac{B}{o}\,t_{prefill}, \qquad n = \frac{\lambda\, o\, t(B)}{h\,B}$$
#
# $P_{mm}$ counts the parameters that are multiplied: all but the embedding rows, which are looked up.
# $\kappa = 2LKH \cdot 2$ bytes a token; $F$ and $W$ are the FLOP/s and bytes/s reached; $t_0$ is a fixed 0.5 ms a step;
# $t_{prefill}$ is the arithmetic of one prompt; $\lambda$ the arrivals; $h$ the share of its capacity at which a
# replica is run. Six lines against the library, from which they borrow only the batch (your exercise 2):

# %%
base = Journey(model=model, device=device).with_changes(
    arrival_requests_per_second=requests_per_second, prompt_tokens=prompt_tokens, output_tokens=output_tokens,
    tpot_seconds=promise_ms / 1000)
s, F, W, B = base.shape, base["flops_per_second"], base["bytes_per_second"], base["batch"]
kv = 2 * s.num_layers * s.num_kv_heads * s.head_size * 2
room = (0.9 * base["memory_bytes"] - 2 * s.num_parameters - 3e9) // (kv * (prompt_tokens + output_tokens))
work = 2 * (s.num_parameters - s.num_lookup_parameters)
t = max(work * B / F, work / W) + B * (prompt_tokens + output_tokens / 2) * kv / W + 5e-4
t += B / output_tokens * work * prompt_tokens / F
replicas = requests_per_second * output_tokens * t / (0.7 * B)
for name, mine in (("kv_bytes_per_token", kv), ("memory_batch", room), ("num_replicas", replicas)):
    print(f"{name:<20} by hand {mine:>14,.6f}   by the chain {base[name]:>14,.6f}")
link_strip(base)

# %% [markdown]
# The counts are exact; the dollars stand on two assumed shares of the peaks (0.6 of the FLOP/s, 0.8 of the bytes/s), so
# they come with a band from now on. The formula ends where its assumptions end: steady traffic, mean lengths, nothing
# overlapping but arithmetic and weights.
#
# ## Exercise 1: what fits
#
# The link that the second engineer broke. Weights and cache are in bf16, two bytes a number. Of all the memory the
# engine may use 0.9, and of that it keeps 3e9 bytes for itself. `memory_gb` is as on a data sheet.

# %% role="exercise" grade_id="w4-5-sequences" points=2
def sequences_that_fit(num_parameters, num_layers, num_heads, num_kv_heads, head_size, tokens, memory_gb):
    """Whole sequences of `tokens` tokens whose KV cache fits beside the weights; 0 if none does."""
    ### BEGIN SOLUTION
    free = 0.9 * memory_gb * 1e9 - 2 * num_parameters - 3e9
    one_sequence = 2 * num_layers * num_kv_heads * head_size * 2 * tokens
    return max(0, math.floor(free / one_sequence))
    ### END SOLUTION

# %% role="check"
check("w4-5-sequences", sequences_that_fit)

# %% role="reveal" id="w4-5-wide-layer" points=1
def wide_layer():
    wide = base.with_shape(feed_forward_size=base.shape.feed_forward_size + extra_columns)
    return 100 * wide.diff(base).relative

reveal("w4-5-wide-layer", wide_layer)

# %% role="reveal" id="w4-5-kv-heads" points=1
reveal("w4-5-kv-heads", lambda: 100 * base.with_shape(num_kv_heads=kv_heads).diff(base).relative)

# %% [markdown]
# ## The trap: "parameters +10 %, so dollars +10 %"
#
# It is a tempting formula: a bigger model costs in proportion. Here is what it promises (column `parameters`) beside
# what happens.

# %%
size = base.shape
edits = {
    "256 more columns": {"feed_forward_size": size.feed_forward_size + 256},
    f"{extra_columns:,} more columns": {"feed_forward_size": size.feed_forward_size + extra_columns},
    f"{kv_heads} key/value heads": {"num_kv_heads": kv_heads},
    "1 key/value head": {"num_kv_heads": 1},
    "4 more layers": {"num_layers": size.num_layers + 4},
    "vocabulary x 2": {"vocab_size": 2 * size.vocab_size}}
moved = {name: base.with_shape(**edit) for name, edit in edits.items()}
print(f"{'edit':<20} parameters   batch   continuous      invoice")
for name, j in moved.items():
    more, dearer = (j[link] / base[link] - 1 for link in ("num_parameters", "continuous_usd_per_month"))
    print(f"{name:<20} {more:>+10.1%} {j['batch']:>7.0f} {dearer:>+12.1%} {j['billed_usd_per_month']:>12,.2f}")
change_bands([(name, j.diff(base).relative_band) for name, j in moved.items()])

# %% [markdown]
# Parameters are stored **once for all** requests and read once a step for the whole batch. A cache is stored and read
# **once for each**. Multiply the second by four and the room falls from 224 sequences to 54.
#
# A layer brings parameters *and* cache: dearer than its share of them. Half of a doubled vocabulary is only looked up:
# cheaper. 256 columns, or 2,048, cost a little everywhere and nothing on the invoice: they eat what was left of the
# last replica.
#
# The bars say how sure this is. Over compute efficiencies 0.4 to 0.7 and bandwidth efficiencies 0.6 to 0.9 the head
# edit costs +101 % to +177 %: an uncertain number, and a certain decision, for at none of the 7 × 7 points tried are 32
# heads the cheaper choice.
#
# ## Predict: who is to blame?
#
# More key/value heads add parameters (bytes), arithmetic (FLOPs) and cache (bytes). What percent of the extra
# continuous dollars is due to the cache alone?

# %% role="predict" id="w4-5-kv-share" guess="70 50 90"
predict("w4-5-kv-share", ..., low=..., high=..., unit="% of the extra dollars")

# %% role="reveal" id="w4-5-kv-share" points=1
def kv_share():
    why = base.with_shape(num_kv_heads=kv_heads).diff(base)
    return 100 * why.attribution.usd_per_month("KV bytes") / why.usd_per_month

reveal("w4-5-kv-share", kv_share)

# %% [markdown]
# ## Exercise 2: where the promise stops the batch
#
# In the base, 224 sequences fit and only 211 run: the promise stops the batch first. All times in milliseconds.
# Arithmetic, the reading of the caches and prefill are for **one** sequence; a sequence is prefilled once and then
# lives for `output_tokens` steps; `room` is what fits in memory.

# %% role="exercise" grade_id="w4-5-largest-batch" points=2
def largest_batch(arithmetic_ms, weights_ms, kv_ms, prefill_ms, fixed_ms, output_tokens, promise_ms, room):
    """Largest whole batch that fits and keeps the promised time between tokens; 0 if none does."""
    ### BEGIN SOLUTION
    best = 0
    for batch in range(1, room + 1):
        step = max(batch * arithmetic_ms, weights_ms) + batch * kv_ms + fixed_ms
        if step + batch / output_tokens * prefill_ms <= promise_ms:
            best = batch
    return best
    ### END SOLUTION

# %% role="check"
check("w4-5-largest-batch", largest_batch)

# %% [markdown]
# ## Predict: what is INT4 worth?
#
# Store the weights in 4.25 bits instead of 16. At the promise of 50 ms this saves half a percent of the continuous
# dollars: the arithmetic of 211 tokens takes nearly as long as reading the weights. Now promise 10 ms, and nothing
# else changes. By how many percent does INT4 move the dollars then? (A saving is negative.)

# %% role="predict" id="w4-5-int4" guess="-10 -40 -2"
predict("w4-5-int4", ..., low=..., high=..., unit="% of continuous dollars")

# %% role="reveal" id="w4-5-int4" points=1
def int4_change():
    short = base.with_changes(tpot_seconds=short_promise_ms / 1000)
    return 100 * short.with_changes(weight_dtype="int4-g64").diff(short).relative

reveal("w4-5-int4", int4_change)

# %% role="measure"
print("promise   batch  continuous  INT4 weights: change and band    FP8 cache   ranking flips on")
for ms in promises_ms:
    at = base.with_changes(tpot_seconds=ms / 1000)
    int4, fp8 = at.with_changes(weight_dtype="int4-g64"), at.with_changes(kv_dtype="fp8")
    saved, band = int4.diff(at).relative, int4.diff(at).relative_band
    interval = f"({band.low:+.0%} to {band.high:+.0%})"
    print(f"{ms:>4} ms {at['batch']:>8.0f} {at['continuous_usd_per_month']:>11,.0f} {saved:>+10.1%} {interval:<20}"
          f"{fp8.diff(at).relative:>+12.1%} {fp8.diff(int4).flip_probability:>15.0%}")

# %% [markdown]
# One edit, five financial verdicts. A tight promise forces a small batch; a small batch divides the weights among few;
# then the bytes of the weights *are* the bill. The last column answers "are you sure?": at 50 ms the FP8 cache wins
# everywhere, at 12 ms INT4 does, and at 20 ms the two are so near that the ranking turns over on 20 % of the
# efficiencies. Calibrate before you choose there. Two things this table does not price: unpacking INT4 takes time on a real
# machine and none here, and what either format costs in quality is a question for week 3.
#
# ## Who gets the credit?
#
# A product manager promises 10 ms, an engineer brings INT4, in the same month. What did each do to the bill?

# %%
changes = {"the promise": {"tpot_seconds": short_promise_ms / 1000}, "INT4": {"weight_dtype": "int4-g64"}}
for order in (("INT4", "the promise"), ("the promise", "INT4")):
    journey = base
    for name in order:
        last, journey = journey, journey.with_changes(**changes[name])
        change = journey["continuous_usd_per_month"] - last["continuous_usd_per_month"]
        print(f"{name:<12} {change:>+10,.0f} USD a month", end="     ")
    print()
print("Shapley:", ", ".join(f"{name} {usd:+,.0f}" for name, usd in journey.diff(base).attribution.terms))
what_moved_it(journey, base)[0]

# %% [markdown]
# Together they cost **\$1,295** more, less than one replica: the invoice does not move at all. The sum is the same in
# both orders, the shares are not: INT4 saved **\$70** or **\$15,872**, as you like to tell it. The Shapley value takes
# the mean over all orders: no order is favoured, what changes nothing gets nothing, and the shares add up to the cent.
# It is a fair convention; it is no cause that you could measure on its own.
#
# ## Exercise 3: what is worth money?
#
# The strip marks what **binds** now: what stops the batch, and what its matmuls wait for. Is that where money is
# saved? Give each of four things 10 % more: `efficiency_compute` (arithmetic), `efficiency_bandwidth`,
# `memory_fraction`, `tpot_seconds` (promise). Return the name of the one that leaves the fewest continuous dollars to
# pay: one of the four keys of `fields`. What a field is now you read as `journey["efficiency_compute"]`.

# %% role="exercise" grade_id="w4-5-relief" points=3
def best_relief(model, device, promise_ms, prompt_tokens):
    """The name of the relief that cuts continuous dollars most."""
    journey = Journey(model=model, device=device).with_changes(
        tpot_seconds=promise_ms / 1000, prompt_tokens=prompt_tokens)
    fields = {"arithmetic": "efficiency_compute", "bandwidth": "efficiency_bandwidth",
              "memory": "memory_fraction", "promise": "tpot_seconds"}
    ### BEGIN SOLUTION
    dollars = {name: journey.with_changes(**{field: 1.1 * journey[field]})["continuous_usd_per_month"]
               for name, field in fields.items()}
    return min(dollars, key=dollars.get)
    ### END SOLUTION

# %% role="check"
check("w4-5-relief", best_relief)

# %% [markdown]
# In the base the promise binds, and 10 % more of it saves 0.6 %: memory stands right behind it, at 224. Faster
# arithmetic saves 5.6 %. *What binds* is a fact about one setting; *what is worth money* is a difference between two.
#
# ## Exercises 4 and 5: the staircase
#
# Nobody rents 6.07 replicas: the base rents 7, and one to spare if another fails. First the invoice: whole replicas,
# `spares` on top, each of so many `devices`.
#
# Then turn it around. Traffic of `rate` requests a second arrives; one replica could serve `replica_rate` and is run at
# the share `headroom` of that. Up to which rate does the invoice stay as it is? The request beyond it buys a replica.

# %% role="exercise" grade_id="w4-5-invoice" points=1
def invoice(replicas, spares, devices, usd_per_hour, hours):
    """Dollars of a month for a load that needs `replicas` (a real number)."""
    ### BEGIN SOLUTION
    return (math.ceil(replicas) + spares) * devices * usd_per_hour * hours
    ### END SOLUTION

# %% role="check"
check("w4-5-invoice", invoice)

# %% role="exercise" grade_id="w4-5-free-rate" points=2
def last_free_rate(rate, replica_rate, headroom):
    """The largest rate that today's replicas serve, spare ones left out."""
    ### BEGIN SOLUTION
    given = headroom * replica_rate
    return math.ceil(rate / given) * given
    ### END SOLUTION

# %% role="check"
check("w4-5-free-rate", last_free_rate)

# %% [markdown]
# ## The whole chain under your fingers
#
# First the staircase of your last exercise, drawn for the base: a flat step is traffic for free. Then the page. Every
# slider is a link you have walked. Below the invoice you are asked for a number first; the chart comes when you
# commit one. Try: find the widest feed-forward layer that is free; serve the same model with 1 key/value head; set the
# promise to 12 ms and choose between INT4 and an FP8 cache; make a 70B model fit (the message tells how).
# It opens on the second engineer's edit, beside the base.

# %%
name = "arrival_requests_per_second"
points = along(base, name, sweep_values(base, name))
one = base["headroom"] * base["requests_per_second"]
whole = math.ceil(requests_per_second / one)
print(f"{whole} replicas serve {whole * one:.2f} requests/s; the next request costs "
      f"{base.bill.rows[0].contracted_unit_price * base['hours']:,.2f} USD a month")
display(staircase(points, name, requests_per_second, next_step(base, name, points, requests_per_second)))
bill_explorer(base, start=base.with_shape(num_kv_heads=kv_heads))

# %% [markdown]
# ## Close
#
# *Transfer.* Take the model that you run, or one of the menu, and find its cheapest edit and its dearest one. Then ask
# what your price of an hour would have to be for the choice to turn over, and whether it can.
#
# *Discuss.* A colleague proposes to double the key/value heads "for quality, it is only three percent more parameters".
# Which two numbers do you ask for before you answer?
#
# - What is kept once for all is cheap; what is kept once for each request is multiplied by every request.
# - The same edit has another price under another promise: see what binds, then what 10 % of each link is worth.
# - Invoices move in steps; continuous dollars, with their band, tell you what an edit really eats.
#
# Sources: Ainslie and others, *GQA*, arXiv 2305.13245, 2023; Pope and others, *Efficiently Scaling Transformer
# Inference*, MLSys 2023; Kwon and others, *PagedAttention*, SOSP 2023; Shapley, *A Value for n-Person Games*, 1953;
# NVIDIA, *H100 Tensor Core GPU data sheet*; prices as dated in the library's price file.
