// Answers what server.py answers, by com.sun.net.httpserver.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.concurrent.Executors;

public class Server {
    static void answer(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        String query = exchange.getRequestURI().getRawQuery();
        String text = exchange.getRequestMethod() + " " + (query == null ? "" : query) + " " + body.length + " ";
        byte[] start = text.getBytes();
        byte[] whole = Arrays.copyOf(start, start.length + body.length);
        System.arraycopy(body, 0, whole, start.length, body.length);
        switch (exchange.getRequestURI().getPath()) {
            case "/big":
                whole = new byte[1 << 20];
                Arrays.fill(whole, (byte) 'x');
                break;
            case "/204":
                exchange.sendResponseHeaders(204, -1);
                exchange.close();
                return;
            case "/parts":
                exchange.sendResponseHeaders(200, 0);
                exchange.getResponseBody().write('a');
                exchange.getResponseBody().flush();
                exchange.getResponseBody().write('b');
                exchange.close();
                return;
        }
        if (exchange.getRequestMethod().equals("HEAD")) {
            exchange.getResponseHeaders().set("Content-Length", "" + whole.length);
            exchange.sendResponseHeaders(200, -1);
        } else {
            exchange.sendResponseHeaders(200, whole.length);
            exchange.getResponseBody().write(whole);
        }
        exchange.close();
    }

    public static void main(String[] words) throws IOException {
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0]));
        HttpServer server = HttpServer.create(address, 0);
        server.createContext("/", Server::answer);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
