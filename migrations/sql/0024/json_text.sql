CREATE OR REPLACE FUNCTION json_text(document json, name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN readable_json(document) ->> name;
