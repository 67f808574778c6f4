import com.google.protobuf.StringValue;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** What schemas do. */
public final class Typed {
  /** A flight; another class has the same fields, or more of them. */
  public static class Flight {
    public String carrier;
    public int number;
  }

  /** The same fields under another name. */
  public static class Leg {
    public String carrier;
    public int number;
  }

  /** One field more, which may be missing. */
  public static class LongFlight {
    public String carrier;
    public int number;
    public String via;
  }

  /** A field of another type. */
  public static class OddFlight {
    public boolean carrier;
    public int number;
  }

  /** Objects by Avro. */
  public Object avro(Server server) throws Exception {
    return roundTrip(server, Schema.AVRO(Flight.class));
  }

  /** Objects by JSON. */
  public Object json(Server server) throws Exception {
    return roundTrip(server, Schema.JSON(Flight.class));
  }

  /** Messages by Protobuf, by its Avro definition and by its own descriptor. */
  public Object protobuf(Server server) throws Exception {
    Map<String, Object> found = new LinkedHashMap<>();
    Map<String, Schema<StringValue>> schemas =
        Map.of("avro", Schema.PROTOBUF(StringValue.class), "native", Schema.PROTOBUF_NATIVE(StringValue.class));
    for (var schema : schemas.entrySet()) {
      String topic = server.topic(schema.getKey());
      try (Consumer<StringValue> consumer = consumer(server, schema.getValue(), topic);
          Producer<StringValue> producer = server.client().newProducer(schema.getValue()).topic(topic).create()) {
        producer.send(StringValue.of("text"));
        found.put(schema.getKey(), Steps.next(consumer).getValue().getValue());
      }
    }
    return found;
  }

  /** Pairs, in both encodings. */
  public Object keyValue(Server server) throws Exception {
    Map<String, Object> found = new LinkedHashMap<>();
    for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
      String topic = server.topic(encoding.name().toLowerCase());
      Schema<KeyValue<String, Flight>> schema = Schema.KeyValue(Schema.STRING, Schema.AVRO(Flight.class), encoding);
      try (Consumer<KeyValue<String, Flight>> consumer = consumer(server, schema, topic);
          Producer<KeyValue<String, Flight>> producer = server.client().newProducer(schema).topic(topic).create()) {
        producer.newMessage().value(new KeyValue<>("k", flight())).send();
        Message<KeyValue<String, Flight>> message = Steps.next(consumer);
        found.put(encoding.name(), message.getValue().getKey() + " " + message.getValue().getValue().number + " " + message.hasKey());
      }
    }
    return found;
  }

  /** A consumer that knows no schema reads records; a producer that knows none is checked. */
  public Object automatic(Server server) throws Exception {
    String topic = server.topic();
    Map<String, Object> found = new LinkedHashMap<>();
    try (Producer<Flight> producer = server.client().newProducer(Schema.AVRO(Flight.class)).topic(topic).create();
        Producer<byte[]> raw = server.client().newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create();
        Consumer<GenericRecord> consumer = consumer(server, Schema.AUTO_CONSUME(), topic)) {
      producer.send(flight());
      raw.send(Schema.AVRO(Flight.class).encode(flight()));
      for (String name : new String[] {"typed", "raw"}) {
        GenericRecord record = Steps.next(consumer).getValue();
        found.put(name, record.getField("carrier") + " " + record.getField("number") + " " + record.getSchemaType());
      }
      found.put("wrong", Steps.errorOf(() -> raw.send("nonsense".getBytes(StandardCharsets.UTF_8))));
    }
    return found;
  }

  /** A record grows; old and new messages are read by the new schema, and by the old one. */
  public Object evolved(Server server) throws Exception {
    String topic = server.topic();
    Map<String, Object> found = new LinkedHashMap<>();
    Schema<LongFlight> longer = Schema.AVRO(SchemaDefinition.<LongFlight>builder().withPojo(LongFlight.class).withAlwaysAllowNull(true).build());
    try (Producer<Flight> old = server.client().newProducer(Schema.AVRO(Flight.class)).topic(topic).create()) {
      old.send(flight());
    }
    try (Producer<LongFlight> producer = server.client().newProducer(longer).topic(topic).create()) {
      LongFlight flight = new LongFlight();
      flight.carrier = "UA";
      flight.number = 2;
      flight.via = "ORD";
      producer.send(flight);
    }
    try (Consumer<LongFlight> consumer = consumer(server, longer, topic)) {
      LongFlight first = Steps.next(consumer).getValue();
      LongFlight second = Steps.next(consumer).getValue();
      found.put("new", first.number + " " + first.via + " " + second.number + " " + second.via);
    }
    try (Consumer<Flight> consumer =
        server.client().newConsumer(Schema.AVRO(Flight.class)).topic(topic).subscriptionName("old")
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
      found.put("old", Steps.next(consumer).getValue().number + " " + Steps.next(consumer).getValue().number);
    }
    return found;
  }

  /** A record of another name with the same fields, and one with another type. */
  public Object renamed(Server server) throws Exception {
    String topic = server.topic();
    Map<String, Object> found = new LinkedHashMap<>();
    try (Producer<Flight> producer = server.client().newProducer(Schema.AVRO(Flight.class)).topic(topic).create()) {
      producer.send(flight());
    }
    found.put("renamed", Steps.errorOf(() -> server.client().newProducer(Schema.AVRO(Leg.class)).topic(topic).create().close()));
    found.put("incompatible", Steps.errorOf(() -> server.client().newProducer(Schema.AVRO(OddFlight.class)).topic(topic).create().close()));
    found.put("consumer", Steps.errorOf(() -> consumer(server, Schema.AVRO(OddFlight.class), topic).close()));
    try (Consumer<Leg> consumer =
        server.client().newConsumer(Schema.AVRO(Leg.class)).topic(topic).subscriptionName("leg")
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
      found.put("read", Steps.next(consumer).getValue().number);
    }
    return found;
  }

  /** The primitives. */
  public Object primitives(Server server) throws Exception {
    Map<String, Object> found = new LinkedHashMap<>();
    found.put("int", primitive(server, Schema.INT32, -5));
    found.put("long", primitive(server, Schema.INT64, 1L << 40));
    found.put("double", primitive(server, Schema.DOUBLE, 2.5));
    found.put("bool", primitive(server, Schema.BOOL, true));
    found.put("instant", primitive(server, Schema.INSTANT, java.time.Instant.ofEpochSecond(5, 7)).toString());
    return found;
  }

  private static <T> T primitive(Server server, Schema<T> schema, T value) throws Exception {
    String topic = server.topic(schema.getSchemaInfo().getType().name().toLowerCase());
    try (Consumer<T> consumer = consumer(server, schema, topic);
        Producer<T> producer = server.client().newProducer(schema).topic(topic).create()) {
      producer.send(value);
      return Steps.next(consumer).getValue();
    }
  }

  private static Object roundTrip(Server server, Schema<Flight> schema) throws Exception {
    String topic = server.topic();
    try (Consumer<Flight> consumer = consumer(server, schema, topic);
        Producer<Flight> producer = server.client().newProducer(schema).topic(topic).create()) {
      for (int i = 0; i < 10; i++) {
        producer.sendAsync(flight());
      }
      producer.flush();
      int sum = 0;
      for (int i = 0; i < 10; i++) {
        Flight flight = Steps.next(consumer).getValue();
        sum += flight.carrier.equals("UA") ? flight.number : 0;
      }
      return sum;
    }
  }

  private static Flight flight() {
    Flight flight = new Flight();
    flight.carrier = "UA";
    flight.number = 1545;
    return flight;
  }

  private static <T> Consumer<T> consumer(Server server, Schema<T> schema, String topic) throws Exception {
    return server.client().newConsumer(schema).topic(topic).subscriptionName("s")
        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
  }
}
