from .carrying import Agent as Agent
from .client import AsyncFleet as AsyncFleet, Fleet as Fleet
from .turns import (
    FleetEvent as FleetEvent,
    FleetStatus as FleetStatus,
    Outcome as Outcome,
    Turn as Turn,
    TurnEnded as TurnEnded,
    prometheus_text as prometheus_text,
)
from .worker import ProviderLimit as ProviderLimit, Worker as Worker
