"""The examples in the docstrings of the names that a reader meets first run and print what they show."""
import doctest

import pytest

from sentnb import augmenters, losses
from sentnb.encoders import PixelEncoder
from sentnb.evaluation import bitext, geometry
from sentnb.renderer import TextRenderer
from sentnb.training import fit

PUBLIC = [TextRenderer, augmenters.perturb, losses.info_nce, losses.attention_mutual_information,
          losses.sup_con, losses.additive_margin_softmax, losses.max_hinge, PixelEncoder,
          bitext.match_error, bitext.mine, geometry.anisotropy, fit]


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda thing: thing.__name__)
def test_example(thing):
    "Each imports what it uses, so that it can be copied."
    example = doctest.DocTestParser().get_doctest(thing.__doc__, {}, thing.__name__, None, None)
    assert example.examples and any(line.want for line in example.examples), "an example shows its output"
    messages = []
    done = doctest.DocTestRunner(verbose=False).run(example, out=messages.append)
    assert done.failed == 0, "".join(messages)
