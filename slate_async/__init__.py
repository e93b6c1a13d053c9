"""An asyncio-native storage engine that keeps everything in an object store."""
