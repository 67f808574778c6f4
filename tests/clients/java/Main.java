import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.shade.com.fasterxml.jackson.databind.JsonNode;
import org.apache.pulsar.shade.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Runs steps of the official Java client, one for each line of standard input.
 *
 * <p>A line is JSON: {"step": "Producing.batched", "args": {…}}. A step is a public method of a class of this folder; it
 * takes a {@link Server} and returns a value. The answer is one line of JSON: {"ok": value} or {"error": class, "message":
 * text}. A step that takes longer than 120 seconds is answered as the error "hangs".
 */
public final class Main {
  private static final int LIMIT_S = 120; // the first encryption loads and seeds the security provider, which takes long on a busy machine

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // what libraries print is no answer
    ObjectMapper json = new ObjectMapper();
    ExecutorService threads = Executors.newCachedThreadPool(Main::daemon);
    Server server = new Server(arguments[0], arguments[1], json);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonNode order = json.readTree(line);
      String step = order.get("step").asText();
      Server own = server.with(step, order.get("args"));
      Future<Object> result = threads.submit(() -> call(step, own));
      answers.println(json.writeValueAsString(answer(result)));
      threads.submit(own::close);
    }
    System.exit(0);
  }

  private static Map<String, Object> answer(Future<Object> result) throws InterruptedException {
    Map<String, Object> answer = new LinkedHashMap<>();
    try {
      answer.put("ok", result.get(LIMIT_S, TimeUnit.SECONDS));
    } catch (TimeoutException error) {
      result.cancel(true);
      answer.put("error", "hangs");
      answer.put("message", "no result after " + LIMIT_S + " s");
    } catch (ExecutionException error) {
      Throwable cause = error.getCause();
      while (cause instanceof InvocationTargetException && cause.getCause() != null) {
        cause = cause.getCause();
      }
      cause.printStackTrace();
      answer.put("error", cause.getClass().getSimpleName());
      answer.put("message", String.valueOf(cause.getMessage()));
    }
    return answer;
  }

  private static Object call(String step, Server server) throws Exception {
    int dot = step.indexOf('.');
    Class<?> steps = Class.forName(step.substring(0, dot));
    Object self = steps.getDeclaredConstructor().newInstance();
    return steps.getMethod(step.substring(dot + 1), Server.class).invoke(self, server);
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    return thread;
  }
}
