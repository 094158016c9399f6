"""Energy of a fleet: joules and kilowatt-hours, from the board power and an assumed load."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.errors import InvalidInputError
from course_lib.units import HOUR

__all__ = ["Energy", "fleet_energy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy of a month.

    Args:
        joules_per_month: all devices, cooling and conversion included [J].
        joules_per_output_token: the same over the tokens generated [J].
        basis: always "assumed": the share of board power in use is not measured here.
        assumptions: the assumed values, in words.
    """

    joules_per_month: float
    joules_per_output_token: float
    basis: str = "assumed"
    assumptions: str = ""

    @property
    def kwh_per_month(self) -> float:
        """Kilowatt-hours: 3.6e6 joules each."""
        return self.joules_per_month / (1000 * HOUR)


def fleet_energy(
    *, tdp_watts: float, num_devices: float, hours: float, output_tokens: float, busy_fraction: float,
    idle_power_fraction: float = 0.15, power_usage_effectiveness: float = 1.2,
) -> Energy:  # fmt: skip
    """Energy of ``num_devices`` for ``hours``, from a linear power model.

    ``joules = devices * hours * 3600 * tdp * (idle + busy * (1 - idle)) * PUE``

    Args:
        tdp_watts: board power of one device [W].
        num_devices: devices that are switched on, spare ones too.
        hours: length of the month [h].
        output_tokens: tokens generated in that time.
        busy_fraction: share of time that a device works, 0..1.
        idle_power_fraction: idle power over board power, 0..1 (assumed).
        power_usage_effectiveness: power of the building over power of the devices, from 1 (assumed).

    Assumes: power is linear in the busy share and reaches the board power when busy; hosts are left out.

    >>> month = fleet_energy(tdp_watts=700, num_devices=8, hours=730, output_tokens=4.73e10, busy_fraction=0.5)
    >>> round(month.kwh_per_month, 2)
    2820.72
    """
    for name, value, low, high in (
        ("busy_fraction", busy_fraction, 0, 1), ("idle_power_fraction", idle_power_fraction, 0, 1),
        ("power_usage_effectiveness", power_usage_effectiveness, 1, 10), ("tdp_watts", tdp_watts, 0, 1e6),
    ):  # fmt: skip
        if not low <= value <= high:
            raise InvalidInputError(f"{name} is between {low} and {high}", given=value)
    watts = tdp_watts * (idle_power_fraction + busy_fraction * (1 - idle_power_fraction)) * power_usage_effectiveness
    joules = num_devices * hours * HOUR * watts
    said = f"idle at {idle_power_fraction:.0%} of board power, busy {busy_fraction:.0%}"
    said += f", PUE {power_usage_effectiveness}"
    per_token = joules / output_tokens if output_tokens else 0.0
    return Energy(joules_per_month=joules, joules_per_output_token=per_token, assumptions=said)
