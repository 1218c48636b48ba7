"""A pytest plugin: each test draws the same random numbers in every run, alone or after others."""

import random

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def seeded() -> None:
    random.seed(0)
    np.random.seed(0)
