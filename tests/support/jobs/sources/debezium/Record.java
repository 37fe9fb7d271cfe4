import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Records the messages of Debezium's Postgres connector: one JSON object with key and value per line. */
public class Record {
    public static void main(String[] args) throws Exception {
        String port = args[0], schemas = args[1], slot = args[2], out = args[3];
        int expected = Integer.parseInt(args[4]);
        Properties p = new Properties();
        p.setProperty("name", slot);
        p.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        p.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        p.setProperty("offset.flush.interval.ms", "1000");
        p.setProperty("database.hostname", "127.0.0.1");
        p.setProperty("database.port", port);
        p.setProperty("database.user", "postgres");
        p.setProperty("database.password", "x");
        p.setProperty("database.dbname", "postgres");
        p.setProperty("plugin.name", "pgoutput");
        p.setProperty("slot.name", slot);
        p.setProperty("publication.name", slot);
        p.setProperty("topic.prefix", "shop");
        p.setProperty("table.include.list", "public.customers");
        p.setProperty("skipped.operations", "none");
        p.setProperty("key.converter.schemas.enable", schemas);
        p.setProperty("value.converter.schemas.enable", schemas);
        CountDownLatch left = new CountDownLatch(expected);
        PrintWriter file = new PrintWriter(Files.newBufferedWriter(Path.of(out)));
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(p)
            .notifying(event -> {
                file.println("{\"key\":" + event.key() + ",\"value\":" + event.value() + "}");
                file.flush();
                left.countDown();
                if (event.value() != null && event.value().contains("\"Edel\"")) {
                    System.out.println("snapshot read");
                }
            })
            .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        boolean all = left.await(180, TimeUnit.SECONDS);
        engine.close();
        thread.shutdown();
        System.out.println(all ? "all recorded" : "missing " + left.getCount());
    }
}
