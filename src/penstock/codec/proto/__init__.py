"""The text of `.proto` files, syntax proto2 and proto3: read into descriptors, and written from them."""
