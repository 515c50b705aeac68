from .switch import instrument as instrument, uninstrument as uninstrument
