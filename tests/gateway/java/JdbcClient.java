import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

/**
 * What a program does with a JDBC driver: it lists tables and columns, queries, prepares, and fails.
 *
 * Usage: JdbcClient URL TOPIC [USER PASSWORD]. Each line of the output is a word and what was found.
 */
public class JdbcClient {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        if (args.length > 2) {
            properties.put("user", args[2]);
            properties.put("password", args[3]);
        }
        String topic = args[1];
        try (Connection connection = DriverManager.getConnection(args[0], properties)) {
            DatabaseMetaData about = connection.getMetaData();
            say("product", about.getDatabaseProductName() + " " + about.isReadOnly());
            try (ResultSet rows = about.getTables(null, null, "%", new String[] {"TABLE"})) {
                while (rows.next()) {
                    say("table", rows.getString("TABLE_SCHEM") + "." + rows.getString("TABLE_NAME"));
                }
            }
            try (ResultSet rows = about.getColumns(null, null, topic, "%")) {
                while (rows.next()) {
                    say("column", rows.getString("COLUMN_NAME") + " " + rows.getString("TYPE_NAME"));
                }
            }
            for (ResultSet rows : new ResultSet[] {
                about.getCatalogs(), about.getSchemas(), about.getTableTypes(), about.getTypeInfo(),
                about.getPrimaryKeys(null, null, topic), about.getImportedKeys(null, null, topic)}) {
                int count = 0;
                while (rows.next()) {
                    count++;
                }
                say("listed", String.valueOf(count));
                rows.close();
            }
            say("asked", String.valueOf(askAll(about)));
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("SELECT count(*) AS n FROM " + topic)) {
                rows.next();
                say("count", rows.getMetaData().getColumnName(1) + "=" + rows.getLong(1));
            }
            String text = "SELECT \"offset\", CAST(value AS VARCHAR) AS v FROM headwater.topics." + topic
                    + " WHERE partition = ? AND \"offset\" >= ? AND CAST(key AS VARCHAR) <> ? ORDER BY 1";
            try (PreparedStatement statement = connection.prepareStatement(text)) {
                for (long from : new long[] {0, 1}) {
                    statement.setInt(1, 0);
                    statement.setLong(2, from);
                    statement.setString(3, "no such key");
                    try (ResultSet rows = statement.executeQuery()) {
                        while (rows.next()) {
                            say("from " + from, rows.getLong(1) + " " + rows.getString(2));
                        }
                    }
                }
            }
            try (Statement statement = connection.createStatement()) {
                statement.executeQuery("SELECT nothing FROM " + topic);
            } catch (SQLException error) {
                say("failed", told(error));
            }
            try (Statement statement = connection.createStatement()) {
                ResultSet rows = statement.executeQuery("SELECT repeat('x', 1000) FROM " + topic + ", range(100000000)");
                rows.next();
                say("first", rows.getString(1).substring(0, 3));
                statement.cancel();
                while (rows.next()) {
                    // What has arrived already may be read.
                }
            } catch (SQLException error) {
                say("cancelled", told(error));
            }
            try (Statement statement = connection.createStatement()) {
                statement.executeUpdate("DELETE FROM " + topic);
            } catch (SQLException error) {
                say("refused", told(error));
            }
        } catch (SQLException error) {
            say("error", told(error));
        }
    }

    /** Calls every question without arguments about the database, as tools with a window do. */
    private static int askAll(DatabaseMetaData about) throws IllegalAccessException {
        int asked = 0;
        for (Method method : DatabaseMetaData.class.getMethods()) {
            if (method.getParameterCount() == 0 && method.getDeclaringClass() == DatabaseMetaData.class) {
                try {
                    Object answer = method.invoke(about);
                    if (answer instanceof ResultSet) {
                        ((ResultSet) answer).close();
                    }
                    asked++;
                } catch (InvocationTargetException error) {
                    say("unanswered", method.getName() + " " + error.getCause());
                } catch (SQLException error) {
                    say("unanswered", method.getName() + " " + error);
                }
            }
        }
        return asked;
    }

    /** An error and its causes: the driver's own words say little. */
    private static String told(Throwable error) {
        return error == null ? "" : error.getMessage() + " / " + told(error.getCause());
    }

    private static void say(String word, String found) {
        System.out.println(word + "\t" + String.valueOf(found).replace('\n', ' '));
    }
}
