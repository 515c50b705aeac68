from .client import INLINE_UP_TO as INLINE_UP_TO, AsyncFiles as AsyncFiles, Files as Files
from .engine import AsyncFilesEngine as AsyncFilesEngine, FilesEngine as FilesEngine, FilesOptions as FilesOptions
from .stored import FileList as FileList, StoredFile as StoredFile
