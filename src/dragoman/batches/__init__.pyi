from .client import AsyncBatches as AsyncBatches, Batches as Batches, BatchProgress as BatchProgress
from .handle import (
    Batch as Batch,
    BatchDirectory as BatchDirectory,
    BatchResult as BatchResult,
    BatchState as BatchState,
    BatchStatus as BatchStatus,
    batch_from_json as batch_from_json,
    batch_to_json as batch_to_json,
)
