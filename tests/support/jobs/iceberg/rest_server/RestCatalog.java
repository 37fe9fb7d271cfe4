import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.EnumSet;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.FilterHolder;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * A REST catalog: Iceberg's servlet over a catalog in SQLite, with the warehouse in a folder.
 *
 * <p>Arguments: the folder, the port, and optionally the token of an owner and the one of a reader.
 */
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
    if (arguments.length > 2) {
      FilterHolder rights = new FilterHolder(rightsOf("Bearer " + arguments[2], "Bearer " + arguments[3]));
      context.addFilter(rights, "/*", EnumSet.of(DispatcherType.REQUEST));
    }
    Server server = new Server(port);
    server.setHandler(context);
    server.start();
    System.out.println("READY " + server.getURI().getPort());
    server.join();
  }

  /** Answers 401 to unknown tokens, and 403 to a reader who writes. */
  private static Filter rightsOf(String owner, String reader) {
    return (request, response, chain) -> {
      HttpServletRequest asked = (HttpServletRequest) request;
      String token = asked.getHeader("Authorization");
      if (!owner.equals(token) && !reader.equals(token)) {
        refuse((HttpServletResponse) response, 401, "NotAuthorizedException", "the token is unknown");
      } else if (reader.equals(token) && !asked.getMethod().equals("GET") && !asked.getMethod().equals("HEAD")) {
        refuse((HttpServletResponse) response, 403, "ForbiddenException", "the token may only read");
      } else {
        chain.doFilter(request, response);
      }
    };
  }

  private static void refuse(HttpServletResponse response, int code, String type, String message) throws IOException {
    response.setStatus(code);
    response.setContentType("application/json");
    String error = "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"code\":%d}}";
    response.getWriter().write(String.format(error, message, type, code));
  }
}
