"""The guest: the multi-GPU smoke test that is copied into every image.

It needs Python 2.7 or 3.5+, NumPy >= 1.9 and the standard library, and imports no other package of envbuild.
Keep it free of newer syntax (no f-strings, annotations, walrus, keyword-only arguments); tests/smoke checks that.
"""
