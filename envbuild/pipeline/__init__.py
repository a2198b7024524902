"""The order of the stages, and what makes a second run do nothing: the only place that knows both."""
