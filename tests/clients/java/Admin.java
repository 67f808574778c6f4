import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.shade.com.fasterxml.jackson.databind.JavaType;
import org.apache.pulsar.shade.com.fasterxml.jackson.databind.JsonNode;
import org.apache.pulsar.shade.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Calls any method of the admin client by its name: {"on": "topics", "method": "getStats", "with": [arguments]}.
 *
 * <p>Arguments and the result are the JSON of Pulsar's own data classes, so that an answer that these cannot hold fails.
 */
public final class Admin {
  private static final ObjectMapper PULSARS = ObjectMapperFactory.getMapper().getObjectMapper();

  /** The result of one call. A refusal is {"status": HTTP status, "reason": text}. */
  public Object call(Server server) throws Exception {
    return call(server.admin(), server.args);
  }

  private static Object call(PulsarAdmin admin, JsonNode order) throws Exception {
    Object resource = PulsarAdmin.class.getMethod(order.get("on").asText()).invoke(admin);
    String name = order.get("method").asText();
    JsonNode given = order.has("with") ? order.get("with") : PULSARS.createArrayNode();
    IllegalArgumentException unfit = new IllegalArgumentException("no method " + name + " takes " + given);
    for (Method method : resource.getClass().getMethods()) {
      if (!method.getName().equals(name) || method.getParameterCount() != given.size()) {
        continue;
      }
      Object[] arguments;
      try {
        arguments = arguments(method.getGenericParameterTypes(), given);
      } catch (IllegalArgumentException error) {
        unfit.addSuppressed(error);
        continue;
      }
      try {
        method.setAccessible(true);
        return Map.of("value", shown(method.invoke(resource, arguments)));
      } catch (InvocationTargetException error) {
        if (error.getCause() instanceof PulsarAdminException refused && refused.getStatusCode() > 0) {
          return Map.of("status", refused.getStatusCode(), "reason", String.valueOf(refused.getMessage()));
        }
        throw error;
      }
    }
    throw unfit;
  }

  private static Object[] arguments(Type[] types, JsonNode given) throws IllegalArgumentException {
    Object[] arguments = new Object[types.length];
    for (int i = 0; i < types.length; i++) {
      JsonNode one = given.get(i);
      JavaType type = PULSARS.getTypeFactory().constructType(types[i]);
      boolean text = type.getRawClass() == String.class;
      boolean number = type.isPrimitive() && type.getRawClass() != boolean.class;
      if (type.getRawClass() == MessageId.class) {
        arguments[i] = id(one);
      } else if (text != one.isTextual() && !one.isNull() && !type.isEnumType() && (text || type.isPrimitive())) {
        throw new IllegalArgumentException(one + " is no " + type);
      } else if (number && !one.isNumber()) {
        throw new IllegalArgumentException(one + " is no number");
      } else {
        arguments[i] = PULSARS.convertValue(one, type);
      }
    }
    return arguments;
  }

  private static MessageId id(JsonNode text) {
    if (!text.isTextual()) {
      throw new IllegalArgumentException(text + " is no message id");
    }
    try {
      return switch (text.asText()) {
        case "earliest" -> MessageId.earliest;
        case "latest" -> MessageId.latest;
        default -> MessageId.fromByteArray(Base64.getDecoder().decode(text.asText()));
      };
    } catch (java.io.IOException error) {
      throw new IllegalArgumentException(error);
    }
  }

  private static Object shown(Object result) {
    if (result == null) {
      return PULSARS.nullNode();
    }
    if (result instanceof MessageId) {
      return result.toString();
    }
    if (result instanceof Message<?> message) {
      return message(message);
    }
    if (result instanceof List<?> list && !list.isEmpty() && list.get(0) instanceof Message<?>) {
      return list.stream().map(one -> message((Message<?>) one)).toList();
    }
    return PULSARS.valueToTree(result);
  }

  private static Map<String, Object> message(Message<?> message) {
    Map<String, Object> shown = new LinkedHashMap<>();
    shown.put("id", message.getMessageId().toString());
    shown.put("data", new String(message.getData(), java.nio.charset.StandardCharsets.UTF_8));
    shown.put("key", message.getKey());
    shown.put("properties", message.getProperties());
    shown.put("publishTime", message.getPublishTime());
    shown.put("eventTime", message.getEventTime());
    shown.put("producer", message.getProducerName());
    shown.put("sequenceId", message.getSequenceId());
    return shown;
  }
}
