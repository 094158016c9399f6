# %% [markdown]
# # Trace a Tensor: start here
#
# Follow one tensor from its values to a monthly bill. Four weeks, one chain:
# values, tensor, work, machine, optimization, serving, dollars.

# %% [markdown]
# ## Who are you?
#
# - **A student of a course:** work through the notebooks of each week in their order. Your instructor collects
#   the folder of the week. Do not copy or split cells that carry an exercise; add new cells where you like.
# - **Learning by yourself:** the same, and `check(...)` tells you at once what is right and which idea leads astray.
#   Every exercise has public checks; nothing is sent anywhere.
# - **An instructor:** read `docs/lesson-format.md` and the instructor's guide in `docs/`. Grading is nbgrader's,
#   with `grading/nbgrader_config.py`.
#
# In every notebook you commit a number before you see the answer. A wrong number costs nothing; it is the point.

# %% [markdown]
# ## Is this machine ready?
#
# Run the next cell (Shift-Enter). Whatever is missing has its cure beside it.

# %% role="setup"
from course_lib.lesson import course_map, environment_report, progress_page

environment_report()

# %% [markdown]
# ## The map

# %%
course_map()

# %% [markdown]
# ## Your progress
#
# Kept in `.trace-a-tensor/progress.json` in the course folder. Delete the file to begin again.

# %%
progress_page()
