"""`penstock bench`: how fast a server takes, delivers and answers messages, and how long each takes."""
