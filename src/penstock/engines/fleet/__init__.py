"""The processes of one service: how they know one another, and how one passes a request on to another."""
