from .profiles import (
    EmbeddingProfile as EmbeddingProfile,
    Task as Task,
    full_name as full_name,
    profile_for as profile_for,
)
from .run import EmbedOptions as EmbedOptions, Progress as Progress, aembed as aembed, embed as embed
from .vectors import Embeddings as Embeddings
