"""Small things that several ledger tests need."""

import json
from fractions import Fraction

from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Request, Terms
from trueup.noise.law import Cost
from trueup.privacy import Loss, compose

PERSON = Terms("person", "add-remove", public=("area",))


def epsilon(amount) -> Loss:
    """A loss in pure epsilon."""
    return compose([Cost("epsilon", Fraction(amount))])


def rho(amount) -> Loss:
    """A loss in zCDP."""
    return compose([Cost("rho", Fraction(amount))])


def request(loss, key=None, dataset="survey", analyst="ana", **more) -> Request:
    """A request of one analyst for one dataset."""
    return Request(dataset, analyst, loss, key, **more)


def ledger_at(url, cap="1", terms=PERSON, **more):
    """Make a ledger with one dataset."""
    ledger = Ledger.create(url)
    ledger.init("survey", {"epsilon": cap, **more}, terms=terms)
    return ledger


def reserve(ledger, amount, key=None, **more):
    """Reserve some epsilon."""
    return ledger.reserve(request(epsilon(amount), key, **more))


def begin(ledger, amount, key=None, **more):
    """Reserve some epsilon, and begin to draw."""
    reservation = reserve(ledger, amount, key, **more)
    reservation.begin()
    return reservation


def stage(folder, reservation, content="0"):
    """Write a staged bundle that carries its reservation."""
    public = folder / "public"
    public.mkdir(parents=True)
    manifest = {"ledger": dict(reservation.stamp), "content": content}
    (public / "manifest.json").write_text(json.dumps(manifest))
    return folder


def release(ledger, folder, name="out", amount="1/10", key=None):
    """Go through a whole release."""
    reservation = begin(ledger, amount, key)
    return reservation.commit(stage(folder / f".{name}.staging", reservation), folder / name)
