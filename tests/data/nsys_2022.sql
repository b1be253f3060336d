-- As nsys 2022: EXPORT_META_DATA, PROCESSES, all tables made although most are empty.
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE EXPORT_META_DATA (name TEXT NOT NULL, value TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER,
    text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,
    int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL,
    jsonTextId INTEGER, jsonText TEXT
);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL
);
INSERT INTO EXPORT_META_DATA VALUES ('EXPORT_PRODUCT_VERSION', '2022.4.2.1'), ('EXPORT_SCHEMA_VERSION', '3.0.0');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1702632076003395178, '2023-12-15T09:21:16', '2023-12-15T09:21:16');
INSERT INTO PROCESSES VALUES (281474993487872, 1, 'python'), (NULL, NULL, NULL);
-- Every kind of payload, a mark, a start/end range that another thread ended, and one that never ended.
INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, endGlobalTid, domainId, uint64Value, doubleValue,
        int32Value, floatValue) VALUES
    (0, 10, 59, 'plain', 281474993487873, NULL, 0, NULL, NULL, NULL, NULL),
    (1, 9, 59, 'uint64', 281474993487873, NULL, 0, 7, NULL, NULL, NULL),
    (2, 8, 59, 'double', 281474993487873, NULL, 0, NULL, 2.5, NULL, NULL),
    (3, 7, 59, 'int32', 281474993487873, NULL, 0, NULL, NULL, -3, NULL),
    (4, NULL, 34, 'mark', 281474993487873, NULL, 0, NULL, NULL, NULL, 1.5),
    (5, 50, 60, 'moved', 281474993487873, 281474993487874, 0, NULL, NULL, NULL, NULL),
    (6, NULL, 60, 'open', 281474993487873, NULL, 0, NULL, NULL, NULL, NULL),
    (60, 61, 70, 'from a text file', 281474993487873, NULL, 0, NULL, NULL, NULL, NULL),
    (0, NULL, 33, 'a category', NULL, NULL, 0, NULL, NULL, NULL, NULL);
