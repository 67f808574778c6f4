"""The console: a page in the browser that shows and administers what the server has (docs/console.md)."""
