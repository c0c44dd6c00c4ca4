"""Published methods: each a function that fills the slots of `PolicyGradientConfig` with a paper's values, in the module of its family.

Every function takes further settings (optimizer, shapes of batches) as keywords, and they win. What is a paper's value, what its
released code's, and what nobody says, is in the docstrings; the configs that use them say what effect to expect.
"""
