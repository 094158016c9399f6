# %% [markdown]
# # Start here
#
# Someone edits one number in a model's configuration: key/value heads, 8 to 32. The model grows by a tenth. Its
# monthly bill more than doubles, and nobody touched the price list. **Where does the money go?**
#
# In four weeks you follow one tensor along the whole chain, and learn to answer such questions before the invoice does:
#
# > values → tensor → work (FLOPs, bytes) → machine (caches, HBM) → optimization → serving → dollars
#
# **Now run this page:** menu *Run*, then *Run All Cells*. It ends at your map of the course. Only five minutes? Open
# [lesson 4.5](week4_serving/w4_5_dimension_to_bill.ipynb), run it all, and move a slider.

# %% [markdown]
# ## Who are you?
#
# - **A student.** Work through the lessons of each week in their order, then hand in the week's folder as your
#   instructor asks. Add cells wherever you like; leave the exercise cells in one piece, for they carry your marks.
# - **Learning by yourself.** The same lessons, with no deadline. Each check answers on this machine at once, and
#   names the idea behind a wrong answer. Nothing is sent anywhere.
# - **An instructor.** Release, collect and grade with plain nbgrader and `grading/nbgrader_config.py`.
#   [How a lesson is made](docs/lesson-format.md) explains checks and marks; [Contributing](CONTRIBUTING.md) how to add
#   your own.
#
# ## How a lesson goes
#
# 1. **Predict.** Replace `...` by a number before you see the answer. A wrong number costs nothing; noticing it is how
#    you learn.
# 2. **Run and reveal.** The course counts what really happens and puts it beside your number.
# 3. **Build.** Write a few lines, run the check below them. It tells you what to look at next, more with each try.
# 4. **Turn the knobs.** Change the shapes at the top and run again: every number follows.

# %% [markdown]
# ## Is this machine ready?

# %% role="setup"
from course_lib.lesson import course_map, environment_report, progress_page

environment_report()

# %% [markdown]
# <details><summary>It says <i>No module named 'course_lib'</i>, or something is missing</summary>
#
# The notebook runs in another Python than the course. Three ways out:
#
# - In a terminal in the course folder, `make course` sets up everything and opens this page (README has the Windows way).
# - Or choose the course's Python (`.venv`) as the kernel, at the top right of this page.
# - Or install into the Python of this page: put these lines into a new cell, run it, then *Kernel*, *Restart*.
#
#       %pip install torch==2.13.0 --extra-index-url https://download.pytorch.org/whl/cpu
#       %pip install -e ".[fast,notebooks]"
#
# On Binder all of it is installed already; if not, the launch was cut short: open the Binder link again.
#
# </details>

# %% [markdown]
# ## Your map

# %%
course_map()

# %% [markdown]
# ## Your progress

# %%
progress_page()
