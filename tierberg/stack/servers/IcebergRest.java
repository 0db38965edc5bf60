import java.io.Reader;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's reference REST catalog on loopback. Arguments: port, properties file of the catalog behind it. */
public final class IcebergRest {
    public static void main(String[] arguments) throws Exception {
        Properties lines = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[1]))) {
            lines.load(reader);
        }
        Map<String, String> properties = new HashMap<>();
        lines.stringPropertyNames().forEach(name -> properties.put(name, lines.getProperty(name)));
        Catalog catalog = CatalogUtil.buildIcebergCatalog("rest", properties, new Configuration());
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        server.setHandler(context);
        server.start();
        server.join();
    }
}
