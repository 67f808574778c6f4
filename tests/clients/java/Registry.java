import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.List;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.avro.shaded.org.apache.avro.io.BinaryEncoder;
import org.apache.flink.avro.shaded.org.apache.avro.io.DecoderFactory;
import org.apache.flink.avro.shaded.org.apache.avro.io.EncoderFactory;
import org.apache.flink.formats.avro.registry.confluent.ConfluentSchemaRegistryCoder;

/** What Confluent's Java client, and Flink's coder of Avro upon it, do with a schema registry. */
public final class Registry {
  private static final String SUBJECT = "java-value";
  private static final String ORDER = "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"drink\",\"type\":\"string\"}]}";
  private static final String LATER = ORDER.replace("]}", ",{\"name\":\"cups\",\"type\":\"int\"}]}");

  private static CachedSchemaRegistryClient client(Server server) {
    return new CachedSchemaRegistryClient(server.httpUrl + "/registry", 100);
  }

  /** Register, read, look up, compare, set a level, delete. */
  public Object calls(Server server) throws Exception {
    CachedSchemaRegistryClient client = client(server);
    AvroSchema order = new AvroSchema(ORDER);
    int id = client.register(SUBJECT, order);
    boolean same = client(server).getSchemaById(id).equals(order) && client(server).getId(SUBJECT, order) == id;
    boolean compatible = client.testCompatibility(SUBJECT, new AvroSchema(LATER));
    int code = 0;
    try {
      client.register(SUBJECT, new AvroSchema(LATER));
    } catch (RestClientException error) {
      code = error.getErrorCode();
    }
    String level = client.updateCompatibility(SUBJECT, "NONE");
    client.register(SUBJECT, new AvroSchema(LATER));
    int latest = client.getLatestSchemaMetadata(SUBJECT).getVersion();
    List<Integer> deleted = client.deleteSubject(SUBJECT);
    return List.of(same, compatible, code, level, latest, deleted, client(server).getAllSubjects().contains(SUBJECT));
  }

  /** A record is written with its schema's id, and read by another client. */
  public Object coder(Server server) throws Exception {
    Schema schema = new Schema.Parser().parse(ORDER);
    GenericRecord record = new GenericData.Record(schema);
    record.put("drink", "tea");
    ByteArrayOutputStream framed = new ByteArrayOutputStream();
    new ConfluentSchemaRegistryCoder("java-coder-value", client(server)).writeSchema(schema, framed);
    BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(framed, null);
    new GenericDatumWriter<GenericRecord>(schema).write(record, encoder);
    encoder.flush();
    ByteArrayInputStream bytes = new ByteArrayInputStream(framed.toByteArray());
    Schema found = new ConfluentSchemaRegistryCoder(client(server)).readSchema(bytes);
    GenericRecord read = new GenericDatumReader<GenericRecord>(found).read(null, DecoderFactory.get().binaryDecoder(bytes, null));
    return Map.of("drink", read.get("drink").toString(), "schema", found.equals(schema), "magic", framed.toByteArray()[0]);
  }
}
