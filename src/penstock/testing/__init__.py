"""What tests of Penstock, and of code that uses it, need."""
