// A server of the JDK's own, started from its source: `java Server.java PORT`.

import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.concurrent.Executors;

public class Server {
    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[0]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newFixedThreadPool(2));
        server.createContext("/", exchange -> {
            // Made anew for each request: something for the collector to do.
            byte[] answer = new byte[512];
            Arrays.fill(answer, (byte) 'a');
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
    }
}
