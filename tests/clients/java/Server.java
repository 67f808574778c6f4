import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.shade.com.fasterxml.jackson.databind.JsonNode;
import org.apache.pulsar.shade.com.fasterxml.jackson.databind.ObjectMapper;

/** The server that a step talks to, and the clients of the step, which are closed when it ends. */
public final class Server {
  private static final AtomicInteger NUMBERS = new AtomicInteger();

  /** Of the binary protocol: pulsar://host:port. */
  public final String serviceUrl;
  /** Of the admin API: http://host:port. */
  public final String httpUrl;
  /** What the test passed to the step. */
  public final JsonNode args;
  /** For bodies that a step reads or writes itself. */
  public final ObjectMapper json;
  private final String step;
  private PulsarClient client;
  private PulsarAdmin admin;

  Server(String serviceUrl, String httpUrl, ObjectMapper json) {
    this(serviceUrl, httpUrl, json, "", json.createObjectNode());
  }

  private Server(String serviceUrl, String httpUrl, ObjectMapper json, String step, JsonNode args) {
    this.serviceUrl = serviceUrl;
    this.httpUrl = httpUrl;
    this.json = json;
    this.step = step;
    this.args = args;
  }

  Server with(String step, JsonNode args) {
    return new Server(serviceUrl, httpUrl, json, step, args);
  }

  /** The client of this step. */
  public synchronized PulsarClient client() throws PulsarClientException {
    if (client == null) {
      client =
          PulsarClient.builder()
              .serviceUrl(serviceUrl)
              .operationTimeout(10, TimeUnit.SECONDS)
              .lookupTimeout(10, TimeUnit.SECONDS)
              .build();
    }
    return client;
  }

  /** The admin client of this step. */
  public synchronized PulsarAdmin admin() throws PulsarClientException {
    if (admin == null) {
      admin = PulsarAdmin.builder().serviceHttpUrl(httpUrl).requestTimeout(20, TimeUnit.SECONDS).build();
    }
    return admin;
  }

  /** A topic that no other step uses. */
  public String topic() {
    return topic("t");
  }

  /** A topic that no other step uses, with a word of its own in its name. */
  public String topic(String what) {
    return "persistent://public/default/" + step.replace('.', '-') + "-" + what + "-" + NUMBERS.incrementAndGet();
  }

  synchronized void close() {
    try {
      if (client != null) {
        client.shutdown();
      }
      if (admin != null) {
        admin.close();
      }
    } catch (PulsarClientException error) {
      error.printStackTrace();
    }
  }
}
