"""models: data files. Public model shapes, and a small language model trained here on Python's help topics.

The model itself needs torch: ``from course_lib.models.char_lm import load_char_lm``.
"""

from __future__ import annotations

from course_lib.models.char_lm_size import SIZES, CharLMSize
from course_lib.models.corpus import VOCABULARY, Corpus, corpus, decode, encode

__all__ = ["SIZES", "VOCABULARY", "CharLMSize", "Corpus", "corpus", "decode", "encode"]
