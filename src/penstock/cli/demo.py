"""`penstock demo`."""

import click


@click.command("demo")
@click.option("--once", is_flag=True, help="Stop everything at the end.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True)
def command(once: bool, port: int) -> None:
    """Show what Penstock does, on 336,776 real flights."""
    from penstock.demo.show import show

    show(port=port, once=once)
