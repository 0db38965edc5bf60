import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's reference REST catalog on loopback. Arguments: port, folder for its SQLite file and tables. */
public final class IcebergRest {
    public static void main(String[] arguments) throws Exception {
        String folder = arguments[1];
        Catalog catalog = CatalogUtil.buildIcebergCatalog("rest", Map.of(
            "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri", "jdbc:sqlite:" + folder + "/rest.db",
            "warehouse", "file://" + folder + "/warehouse",
            "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO",
            "jdbc.schema-version", "V1",
            // One connection: SQLite refuses a second writer instead of waiting.
            "clients", "1"), new Configuration());
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        server.setHandler(context);
        server.start();
        server.join();
    }
}
