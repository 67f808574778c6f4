"""Three processes before a real Pulsar are killed and restarted in turn, under clients of all endpoints and types.

Of each subscription no message is lost that was published with success, none comes again after its acknowledgement was answered, and
messages of a key keep their order.
"""

from tests.support.service import Service
from tests.support.service_load import Load


def test_one_process_is_killed_and_another_one_restarted(pulsar_service: Service) -> None:
    with Load(pulsar_service) as load:
        load.goes_on()
        pulsar_service.nodes[0].kill()
        load.goes_on()
        pulsar_service.start(0)
        assert pulsar_service.nodes[1].terminate() == 0
        load.goes_on()
        pulsar_service.start(1)
        load.goes_on()
    pulsar_service.know_one_another()
    published = {each for one in load.publishers for each in one.refusals}
    assert not {each for each in published if "the server is shutting down" not in each[1]}, published
