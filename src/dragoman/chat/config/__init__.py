"""How a chat is set up, from code, variables and files.

config.py     Config, the value                      address.py    provider and model, said together or apart
fields.py     what can be set, and by whom           defaults.py   what holds where nobody says anything
load.py       load_config: all sources in order      places.py     where files are
layers.py     what one source says                   tables.py     the tables of a file
merge.py      layers laid over each other            loaded.py     the outcome, explained    shown.py
"""

from dragoman.chat.toml.file import ConfigWarning

from .config import Config, ConfigArguments
from .load import load_config
from .loaded import Explanation, LoadedConfig, Row

__all__ = ["Config", "ConfigArguments", "ConfigWarning", "Explanation", "LoadedConfig", "Row", "load_config"]
