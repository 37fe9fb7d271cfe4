import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** A REST catalog: Iceberg's servlet over a catalog in SQLite, with the warehouse in a folder. */
public class RestCatalog {
  public static void main(String[] arguments) throws Exception {
    String folder = arguments[0];
    int port = Integer.parseInt(arguments[1]);
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize(
        "rest",
        Map.of(
            "uri", "jdbc:sqlite:" + folder + "/rest.db",
            "warehouse", "file://" + folder + "/warehouse",
            "jdbc.schema-version", "V1",
            "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"));
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    RESTCatalogServlet servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
    context.addServlet(new ServletHolder(servlet), "/*");
    Server server = new Server(port);
    server.setHandler(context);
    server.start();
    System.out.println("READY " + server.getURI().getPort());
    server.join();
  }
}
