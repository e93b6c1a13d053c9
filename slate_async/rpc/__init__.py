"""gRPC for all services: servers, channels, and Arrow data in messages of Flight."""
