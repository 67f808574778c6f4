"""Reply with the price of what is asked for: python replier.py [pulsar://127.0.0.1:6650]"""

import sys

import penstock

PRICES = {"tea": "3.50", "coffee": "4.20"}


def main(service_url: str) -> None:
    with penstock.Client(service_url) as client:
        consumer = client.subscribe("prices", "service", penstock.ConsumerType.Shared)
        for message in consumer:
            price = PRICES.get(message.data().decode())
            if price is None:
                consumer.acknowledge(message, reply=b"no such product", is_error=True)
            else:
                consumer.acknowledge(message, reply=price.encode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "pulsar://127.0.0.1:6650")
