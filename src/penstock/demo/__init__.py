"""`penstock demo`: real flights through every part that there is."""
