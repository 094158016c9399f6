"""The capstone's public half: its records, its recordings, and the judge that runs a submission's model.

Hand in ``model.py`` and ``memo.md``; ``python -m grading.capstone FOLDER`` says what they earn on the public part.
"""
