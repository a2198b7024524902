"""Explains an answer: reasons and warnings for a decision, conflicts and alternatives for a refusal."""
