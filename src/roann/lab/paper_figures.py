"""Reference values that the report draws: the paper's ρ, and what psMNIST gives without memory.

What the paper claims, and how our runs compare, is in `paper/` of a checkout.
"""

LINEAR_SOFTMAX = 0.9265
"""Test accuracy of a linear softmax on the 784 pixels: what psMNIST gives without any memory.

Measured, as the best along a descent by L-BFGS; a slow test measures it again.
"""

RHO = {"double-moon": 5.0, "copying": 3.0, "adding": 1 / 200, "psmnist": 1 / 2}
"""The ρ of the paper's figures, by task."""
