"""Messages of Arrow Flight: `flight.proto`, and what protoc makes of it."""
