"""Why an answer is as it is: reasons and warnings, and for a refusal its conflicts and alternatives."""
