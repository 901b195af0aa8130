"""No widget of ours takes a name that ipywidgets uses itself."""

from __future__ import annotations

import ipywidgets as w
import pytest

from llmsim_lab import lab
from llmsim_lab.lab._widget import LabWidget

MEANT = {"_repr_mimebundle_", "close"}
WIDGETS = [
    found
    for name in lab.__all__
    if isinstance(found := getattr(lab, name), type) and issubclass(found, LabWidget)
]


def test_the_widgets_are_found() -> None:
    assert {"RunTree", "TurnStepper"} <= {widget.__name__ for widget in WIDGETS}


@pytest.mark.parametrize("widget", WIDGETS)
def test_a_widget_overrides_nothing_of_ipywidgets_by_accident(widget: type[LabWidget]) -> None:
    own = {
        name
        for part in widget.__mro__
        if issubclass(part, LabWidget)
        for name in vars(part)
        if not (name.startswith("__") and name.endswith("__"))
    }
    # What traitlets writes into every class of widgets is in VBox's own namespace too.
    taken = (own & set(dir(w.VBox))) - set(vars(w.VBox)) - MEANT
    assert taken == set()
