"""The endpoints: each a thin driver round the same broker. None knows another."""
