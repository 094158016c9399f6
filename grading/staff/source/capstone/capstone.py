# %% [markdown]
# # Capstone: predict, measure, justify
#
# Store every weight of an 8-billion-parameter model in 8 bits instead of 16. A step now reads half the bytes. On one of
# three machines the monthly bill goes from **\$26,476** to **\$29,666**: **up** by 12.0 %. On another it falls. Which is which,
# and how could you have known before renting either?

# %% [markdown]
# That is the whole course in one question. You will build the model that answers it: shapes to bytes, bytes to seconds
# on a machine whose habits you have to find out, seconds to tokens, tokens to dollars. Then you will commit to one
# change, see what it does, and say where it would lose.
#
# You hand in this notebook, **model.py** and **memo.md**, all in this folder. `README.md` has the rules and the marks:
# 80 points from the cells below, 20 from a person. Every check can be run as often as you like. At home it uses the public
# recordings; when your work is graded, the same checks use runs that you have not seen.

# %% role="setup"
from pathlib import Path

from course_lib.lesson import check, predict, reveal
from grading.capstone.recordings import recording
from grading.capstone.views import (
    change_page, error_figure, recordings_page, regime_page, replayed_percent, scoreboard, step_floor_seconds,
    steps_figure,
)

submission = Path(".")  # model.py and memo.md stand here

# %% [markdown]
# ## What was recorded
#
# Three machines, six runs each, one replica at a time. The runs are simulated. Peaks and prices are the cited ones; what
# the machines reach of their peaks is invented, and written nowhere in this folder.

# %%
recordings_page()

# %% [markdown]
# ## One step by hand
#
# Take a step of `l40s-base` in which nobody's prompt is read. The weights are 7,504,924,672 parameters of 2 bytes that
# each step must read, and the data sheet says 864 GB/s: 17.37 ms. Each KV token is 131,072 bytes more: 0.152
# microseconds. The products of 64 rows take 2.65 ms at the peak and hide behind the reading. So much for paper.

# %%
base = recording("l40s-base")
decodes = [step for step in base.steps if step[0] == 0 and step[1] == 64][::3]
for _, rows, context, seconds in decodes:
    floor = step_floor_seconds(base.cell, (0, rows, context))
    ms, paper = 1000 * seconds, 1000 * floor
    print(f"{context:,.0f} KV tokens: paper {paper:.2f} ms, recorded {ms:.2f} ms, {ms / paper:.2f} times as long")

# %% [markdown]
# Here are all 40 recorded steps of the run. Left, steps that only decode; right, steps that also read prompts. The gap
# to the data sheet is not one factor. What has to be added to the paper to close it? Seven numbers for each machine will
# do, and 240 steps can tell you what they are.

# %%
steps_figure("l40s-base")

# %% [markdown]
# ## Part 1: the model
#
# Write `predict` in **model.py**. Start with the step on paper, then the constants, then the schedule: who is in which
# step? You may use all of `course_lib`, the simulator of lesson 4.2 too. Run these two cells until you believe yourself.

# %%
scoreboard(submission)

# %%
error_figure(submission)

# %% [markdown]
# ### Reproducible: 15 points
#
# A number that cannot be made again is an anecdote. Two fresh processes, two hash orders, every field the same to the byte.

# %% role="check" grade_id="capstone-reproducible" points=15
check("capstone-reproducible", submission)

# %% [markdown]
# ### Sound: 10 points
#
# Laws that hold for every honest model, whatever its constants: a better machine is never slower, no byte is saved that
# must move, nothing beats its own roofline, and dollars are linear in price and demand.

# %% role="check" grade_id="capstone-sound" points=10
check("capstone-sound", submission)

# %% [markdown]
# ### Accurate: 25 points
#
# At home these run on the recordings above, which you may have fitted too well. Before you hand in, leave one machine's
# `long-context` run out of the fit and predict it: that is closer to what awaits you.

# %% role="check" grade_id="capstone-times" points=10
check("capstone-times", submission)

# %% role="check" grade_id="capstone-first-token" points=5
check("capstone-first-token", submission)

# %% role="check" grade_id="capstone-bytes" points=5
check("capstone-bytes", submission)

# %% role="check" grade_id="capstone-ranking" points=5
check("capstone-ranking", submission)

# %% [markdown]
# ## Part 2: one change
#
# Choose a baseline: `h100-base`, `a100-base` or `l40s-base`. Ask your model about each change that the replay holds.

# %%
baseline = "l40s-base"
changes = [
    {"kv_dtype": "fp8"}, {"weight_dtype": "fp8"}, {"weight_dtype": "int4-g128"}, {"max_batch": 128},
    {"kv_dtype": "fp8", "max_batch": 128}, {"weight_dtype": "fp8", "max_batch": 128},
    {"weight_dtype": "fp8", "kv_dtype": "fp8"},
]
change_page(submission, baseline, changes)

# %% [markdown]
# Now commit. Put `baseline`, `change` and your model's number into **memo.md**, and the same number here, with an
# interval of at most 20 points that you would bet on at nine to one. Negative is cheaper. Do it before you open the replay:
# after the reveal your first number stands.

# %% role="predict" id="capstone-effect" guess="-21.3 -25.0 -17.0"
predict("capstone-effect", ..., low=..., high=..., unit="% of usd_per_month")

# %% role="reveal" id="capstone-effect"
reveal("capstone-effect", lambda: replayed_percent(submission))

# %% [markdown]
# ### Justified: 14 points
#
# The gain must be inside your interval and above the noise of five repetitions (8). Then your change is taken out and
# everything you set beside it stays: if more than a fifth of the gain is still there, something else made it (6). For
# both your model must say that the change gains: a gain only looked up explains nothing.
#
# If the effect is not what you said, leave the number. It costs at most 8 points, and the memo is where you earn them
# back: which term did you have wrong?

# %% role="check" grade_id="capstone-gain" points=8
check("capstone-gain", submission)

# %% role="check" grade_id="capstone-ablation" points=6
check("capstone-ablation", submission)

# %% [markdown]
# ## Part 3: where it loses
#
# Every change costs something. Find traffic, or a machine, where the cost is all that is left. Your model must say so, and
# when your work is graded the bench must agree (10 points).

# %%
change = {"kv_dtype": "fp8"}  # put yours here
regime_page(submission, baseline, change, prompts=(100, 600, 3000), outputs=(40, 200, 600))

# %% role="check" grade_id="capstone-losing-regime" points=10
check("capstone-losing-regime", submission)

# %% [markdown]
# ## Part 4: the memo
#
# Finish **memo.md**. Its numbers are compared with your model, your commitment and the replay (6 points).

# %% role="check" grade_id="capstone-memo" points=6
check("capstone-memo", submission)

# %% [markdown] grade_id="capstone-judgement" points=20
# ### In your own words: 20 points, read by a person
#
# At most 300 words. What bound before, and what binds now? Which rejected alternative was tempting? What could make your
# prediction wrong, and by how much? When do you take the change back? If you would shelve it, say which number decided.
# Last: with your numbers at hand, would you rather have the biggest data centre or the cleverer algorithm?
#
# ### BEGIN SOLUTION
# Reading weights bound the L40S: 17.6 of 40.2 busy seconds. In int4 products bind, 17.6 of 31.6 s, and they bind because
# unpacking costs 25 % there; no narrower format helps further. Batch 128 was tempting at -7.5 %, for it needs no new
# format, but its gain is within three noise bars and the time per token goes from 49 to 58 ms. The prediction rests on
# seven constants fitted to 240 steps; 1 % on the time of unpacked products moves the effect by 0.5 points. Above 18 prompt
# tokens for each output token the sign turns; an alarm stands at 15. On the A100 I would shelve the same change: +7.7 %.
# A fifth of the bill for a format is worth 20 machines in 100, once. The 21st machine is bought again each month.
# ### END SOLUTION

# %% [markdown]
# ## Close
#
# - A data sheet is a floor. What a machine reaches of it is measured, and a model is graded on what it has not seen.
# - Halving bytes halves one term. Who wins depends on the term that binds next.
# - An optimization is a claim with a sign, a size, an error bar and a condition under which it is taken back.
#
# Sources: Williams, Waterman and Patterson, *Roofline*, Communications of the ACM 52(4), 2009; Yu and others, *Orca*, OSDI
# 2022; Kwon and others, *PagedAttention*, SOSP 2023. Machines: vendors' data sheets, cited in `course_lib/hardware/data`.
