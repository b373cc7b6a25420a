"""Where DeepEP 2 keeps ``Buffer``."""
